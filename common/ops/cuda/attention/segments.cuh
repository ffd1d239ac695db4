// What all attention kernels know of a call: its tensors, and the tiles of its segments.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "common/ops/attention.h"
#include "common/ops/cuda/elements.cuh"
#include "common/ops/cuda/work.cuh"
#include "common/ops/shared/attention_index.h"

namespace tandem::ops::TANDEM_KERNELS {

inline constexpr std::size_t kMostSharedBytes = 163 << 10;  // of a block on an A100; an H100 has more

struct DeviceSegment {
    std::int64_t q_begin, q_len, k_begin, k_len;
    std::int64_t causal;  // or 0; no padding, so that equal segments are equal bytes
};

struct AttentionInputs {
    Elements q, k, v;
    std::int64_t q_rows, heads, kv_heads, group, head_dim;
    const DeviceSegment* segments;
    const std::int64_t* starts;  // of each segment's tiles, and behind the last
    std::int64_t segment_count;
    float scale;
};

// A block's tile: which segment, and which tile of it.
struct TilePlace {
    DeviceSegment segment;
    std::int64_t tile;
};

__device__ __forceinline__ TilePlace tile_place(const AttentionInputs& in, std::int64_t tile) {
    const std::int64_t index = shared::part_of(in.starts, in.segment_count, tile);
    return {in.segments[index], tile - in.starts[index]};
}

// The segments that have tiles, on the device; `starts` counts tiles of `tile` of their rows (queries or
// keys).
struct Tiling {
    std::vector<DeviceSegment> segments;
    std::vector<std::int64_t> starts{0};

    void add(const AttentionSegment& s, std::int64_t length, std::int64_t tile) {
        segments.push_back({s.q_begin, s.q_len, s.k_begin, s.k_len, s.causal});
        starts.push_back(starts.back() + ceil_div(length, tile));
    }
    std::int64_t tiles() const { return starts.back(); }
    void upload(Work& work, AttentionInputs& in) const {
        in.segments = work.table(segments);
        in.starts = work.table(starts);
        in.segment_count = static_cast<std::int64_t>(segments.size());
    }
};

// Where the forward's results go (ForwardWrites of attention.h).
struct ForwardOut : Elements {
    bool merge = false;
    Elements rounded = {};  // of bfloat16, or none
};

AttentionInputs attention_inputs(const Tensor& q, const Tensor& k, const Tensor& v, float scale);

// The longest side of a segment.
inline std::int64_t longest(const std::vector<AttentionSegment>& segments) {
    std::int64_t most = 0;
    for (const AttentionSegment& segment : segments) most = std::max({most, segment.q_len, segment.k_len});
    return most;
}

// Tiles of `rows` queries.
inline Tiling query_tiles(Work& work, AttentionInputs& in, const std::vector<AttentionSegment>& segments,
                          std::int64_t rows) {
    Tiling tiling;
    for (const AttentionSegment& segment : segments) {
        if (segment.q_len > 0) tiling.add(segment, segment.q_len, rows);
    }
    if (tiling.tiles() > 0) tiling.upload(work, in);
    return tiling;
}

}  // namespace tandem::ops::TANDEM_KERNELS
