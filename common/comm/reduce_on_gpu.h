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
}  // namespace tandem::comm
