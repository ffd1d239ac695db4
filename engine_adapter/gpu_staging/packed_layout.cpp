#include "engine_adapter/gpu_staging/packed_layout.h"

#include <algorithm>
#include <numeric>

#include "common/align.h"

namespace tandem::engine {
namespace {

constexpr std::uint64_t kAlign = 256;  // of a chunk, as a GPU's allocations

}  // namespace

PackedLayout lay_out_packed(const std::vector<TensorInfo>& tensors, std::uint64_t chunk_bytes) {
    std::vector<std::size_t> order(tensors.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
        return dtype_size(tensors[a].dtype) > dtype_size(tensors[b].dtype);
    });
    PackedLayout layout;
    layout.begin.resize(tensors.size());
    bool full = true;
    for (const std::size_t i : order) {
        if (full) layout.chunks.push_back({round_up(layout.bytes, kAlign), 0, {}});
        PackedChunk& chunk = layout.chunks.back();
        layout.begin[i] = chunk.begin + chunk.bytes;
        chunk.tensors.push_back(i);
        chunk.bytes += tensor_bytes(tensors[i]);
        layout.bytes = chunk.begin + chunk.bytes;
        full = chunk.bytes > chunk_bytes;
    }
    return layout;
}

}  // namespace tandem::engine
