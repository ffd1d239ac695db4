// reduce() of reduce.h as work of a GPU's stream: the same order, the same rounding, the same bits. Sources
// may be peers' memory, mapped here.
#pragma once

#include <cstddef>
#include <span>

#include "common/comm/communicator.h"
#include "common/device/stream.h"

namespace tandem::comm {

// Throws InvalidArgument unless `stream` is a GPU's.
void reduce_on_gpu(Stream& stream, std::span<const std::byte* const> sources, std::byte* out,
                   std::size_t bytes, DType dtype, ReduceOp op, bool accumulate = false);

namespace cuda {

constexpr std::size_t kMaxSources = 256;

// Launches the kernel. At most kMaxSources sources.
void reduce(Stream& stream, std::span<const std::byte* const> sources, std::byte* out, std::size_t bytes,
            DType dtype, ReduceOp op, bool accumulate);

}  // namespace cuda

#if defined(TANDEM_KERNELS_ON_HOST)
// The same kernel, run on the host (tests/support/kernels_on_host.h).
namespace on_host {
using cuda::kMaxSources;
void reduce(Stream& stream, std::span<const std::byte* const> sources, std::byte* out, std::size_t bytes,
            DType dtype, ReduceOp op, bool accumulate);
}  // namespace on_host
#endif
}  // namespace tandem::comm
