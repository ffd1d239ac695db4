// Declares an op's functions of the backends from its public function: behind the declaration of ops::NAME,
//   TANDEM_BACKENDS(NAME)
// declares cpu::NAME and cuda::NAME of the same type, which cpu/NAME.cpp and cuda/NAME.cu define. Where
// several functions NAME take a stream, the types of the first arguments behind it say which one is meant.
// For this folder only: all other code calls the public function, which chooses by the stream's device.
#pragma once

#include <type_traits>

#include "common/device/stream.h"

// Tests compile the kernels a second time, for the host (cuda/portable.cuh), in a namespace of its own.
#if defined(TANDEM_KERNELS_ON_HOST)
#define TANDEM_KERNELS on_host
#else
#define TANDEM_KERNELS cuda
#endif

namespace tandem::ops::detail {

template <typename... First>
struct Overload {
    template <typename R, typename... Rest>
    static std::type_identity<R(Stream&, First..., Rest...)> find(R (*)(Stream&, First..., Rest...));
};

}  // namespace tandem::ops::detail

#define TANDEM_BACKENDS(op, ...)                                      \
    namespace cpu {                                                   \
    decltype(detail::Overload<__VA_ARGS__>::find(&ops::op))::type op; \
    }                                                                 \
    namespace TANDEM_KERNELS {                                        \
    decltype(detail::Overload<__VA_ARGS__>::find(&ops::op))::type op; \
    }
