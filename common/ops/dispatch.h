// Sends an op, whose arguments have been checked, to the backend of its stream's device. For the NAME.cpp of
// this folder:
//   TANDEM_ROUTE(NAME, arguments…)       work of the stream
//   TANDEM_ROUTE_NOW(NAME, arguments…)   the op waits for the stream and returns a result
// A GPU that computes on the CPU (common/device/cpu_kernels.h) runs the CPU's function on the aliases of its
// memory; TANDEM_ROUTE launches it in the order of the stream, TANDEM_ROUTE_OR(NAME, FUNCTION, arguments…) another
// function in its place. On a thread that only counts (common/device/counting.h) a result is zero, and nothing is done.
#pragma once

#include <span>
#include <tuple>
#include <vector>

#include "common/device/counting.h"
#include "common/device/cpu_kernels.h"
#include "common/device/devices.h"
#include "common/error.h"
#include "common/tensor/tensor.h"

namespace tandem::ops::detail {

template <typename T>
void check_device(const char*, Device, const T&) {}
void check_device(const char* op, Device device, const Tensor& tensor);

// An argument as a CPU function finds it: addresses become aliases. For a struct that holds addresses its op
// has an overload in namespace ops. As on a GPU, no tensor is kept alive.
template <typename T>
T aliased(const T& argument) {
    return argument;
}
inline Tensor aliased(const Tensor& tensor) {
    return host_alias(tensor);
}
inline Span aliased(const Span& span) {
    return host_alias(span);
}
inline ConstSpan aliased(const ConstSpan& span) {
    return host_alias(span);
}
inline std::byte* aliased(std::byte* const& data) {
    return host_alias(data);
}

// The same, kept until the stream gets there: what a span shows is copied, but not where the op writes.
template <typename T>
T held(const T& argument) {
    return aliased(argument);
}
template <typename T>
std::vector<T> held(const std::span<const T>& values) {
    std::vector<T> result;
    result.reserve(values.size());
    for (const T& value : values) result.push_back(aliased(value));
    return result;
}

// Whether an argument holds values of the host: a graph would replay those of its recording.
template <typename T>
bool of_host(const T&) {
    return false;
}
template <typename T>
bool of_host(const std::span<T>& values) {
    return !values.empty();
}
template <typename T>
bool of_host(const std::vector<T>& values) {
    return !values.empty();
}

template <typename OnCpu, typename OnAliases, typename OnCuda, typename... Args>
void route(const char* op, Stream& stream, const OnCpu& on_cpu, const OnAliases& on_aliases,
           const OnCuda& on_cuda, const Args&... args) {
    const Device device = stream.device();
    (check_device(op, device, args), ...);
    if (only_counts()) return;
    if (device.type == DeviceType::cpu) {
        on_cpu(stream, args...);
    } else if (computes_on_cpu(device)) {
        require(!recording(stream) || !(of_host(args) || ...),
                "{}: host values in a stream that is being captured; give it tensors on the device", op);
        launch_on_cpu(stream, [on_aliases, arguments = std::tuple(held(args)...)] {
            Stream here = Stream::make_inline();
            std::apply([&](const auto&... argument) { on_aliases(here, argument...); }, arguments);
        });
    } else {
        on_cuda(stream, args...);
    }
}

template <typename OnCpu, typename OnCuda, typename... Args>
auto route_now(const char* op, Stream& stream, const OnCpu& on_cpu, const OnCuda& on_cuda,
               const Args&... args) {
    const Device device = stream.device();
    (check_device(op, device, args), ...);
    if (only_counts()) return decltype(on_cpu(stream, args...))();
    if (device.type == DeviceType::cpu) return on_cpu(stream, args...);
    if (computes_on_cpu(device)) return on_cpu(stream, aliased(args)...);
    return on_cuda(stream, args...);
}

}  // namespace tandem::ops::detail

#define TANDEM_ON_CPU(op) [](Stream& s, const auto&... args) { return cpu::op(s, args...); }
#if TANDEM_WITH_CUDA
#define TANDEM_ON_CUDA(op) [](Stream& s, const auto&... args) { return cuda::op(s, args...); }
#else
#define TANDEM_ON_CUDA(op)                                       \
    [](Stream& s, const auto&... args) {                         \
        throw DeviceUnavailable(#op ": this build has no CUDA"); \
        return cpu::op(s, args...); /* what on_cpu returns */    \
    }
#endif
#define TANDEM_ROUTE_OR(op, on_aliases, ...) \
    detail::route(#op, stream, TANDEM_ON_CPU(op), on_aliases, TANDEM_ON_CUDA(op), __VA_ARGS__)
#define TANDEM_ROUTE(op, ...) TANDEM_ROUTE_OR(op, TANDEM_ON_CPU(op), __VA_ARGS__)
#define TANDEM_ROUTE_NOW(op, ...) \
    detail::route_now(#op, stream, TANDEM_ON_CPU(op), TANDEM_ON_CUDA(op), __VA_ARGS__)
