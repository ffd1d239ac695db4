// attention_forward on the CPU: packing and the walk over tiles. The arithmetic is in kernels.inl and
// forward_pairs.inl.
//
// Key tiles always start at the segment's first key, so a query meets the same tiles in every call:
// attention_forward of a whole sequence, of a prefix, or paged_attention_decode of its last token.
#include "common/ops/attention.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "common/ops/cpu/attention/pair_tiles.h"
#include "common/ops/cpu/attention/tile.h"
#include "common/ops/cpu/parallel.h"
#include "common/ops/cpu/rows.h"

namespace tandem::ops::cpu {
namespace {

using detail::AttentionShape;
using detail::kKeyTile;
using detail::QueryTile;
using detail::Scratch;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct Inputs {
    Tensor q, k, v;
    AttentionShape shape;
    float scale;
};

struct Outputs {
    Tensor out, lse;
    ForwardWrites writes;
};

template <typename Tiles>
void forward_head(const Tiles& tiles, const Inputs& in, const AttentionSegment& segment, std::int64_t head,
                  const typename Tiles::Segment& keys, const Outputs& to) {
    const AttentionShape& s = in.shape;
    thread_local Scratch scratch;
    float* const memory = scratch.floats(tiles.tile_floats() + tiles.scratch_floats());
    for (std::int64_t first = 0; first < segment.q_len; first += Tiles::kQueries) {
        const std::int64_t rows = std::min(Tiles::kQueries, segment.q_len - first);
        const std::int64_t begin = segment.q_begin + first;
        QueryTile tile = tiles.place(memory, memory + tiles.tile_floats());
        tiles.load(tile, in.q, begin, rows, head);
        // Row r sees keys [0, seen + r).
        const std::int64_t seen = segment.causal ? first + segment.k_len - segment.q_len + 1 : segment.k_len;
        const std::int64_t step = segment.causal ? 1 : 0;
        const std::int64_t last = std::min(segment.k_len, seen + step * (rows - 1));
        for (std::int64_t key = 0; key < last; key += kKeyTile) {
            tiles.attend(tile, rows, keys.tile(key),
                         {.visible = std::min(seen, segment.k_len) - key,
                          .step = step,
                          .keys = std::min(kKeyTile, segment.k_len - key)});
        }
        tiles.finish(tile, rows);
        for (std::int64_t row = 0; row < rows; ++row) {
            const std::int64_t at = begin + row;
            const std::int64_t offset = (at * s.heads + head) * s.head_dim;
            float& lse = to.lse.data<float>()[head * s.q_rows + at];
            if (to.writes.merge) {
                detail::merge_tile_row(tile, row, s.width, to.out.data<float>() + offset, s.head_dim, lse);
            } else {
                lse = detail::finish_tile_row(tile, row, s.width, to.out, offset, s.head_dim);
            }
            if (!to.writes.rounded.defined()) continue;
            detail::narrow(to.out.data<float>() + offset, to.writes.rounded.data<bfloat16>() + offset,
                           s.head_dim);
        }
    }
}

template <typename Tiles>
void forward_segments(const Inputs& in, const std::vector<AttentionSegment>& segments, const Outputs& to) {
    const AttentionShape& s = in.shape;
    const Tiles tiles(s, in.scale);
    const std::int64_t items = static_cast<std::int64_t>(segments.size()) * s.kv_heads;
    detail::parallel_for(items, [&](std::int64_t item) {
        const AttentionSegment& segment = segments[static_cast<std::size_t>(item / s.kv_heads)];
        const std::int64_t kv_head = item % s.kv_heads;
        const typename Tiles::Segment keys(tiles, in.k, in.v, segment.k_begin, segment.k_len, kv_head);
        for (std::int64_t g = 0; g < s.group; ++g)
            forward_head(tiles, in, segment, kv_head * s.group + g, keys, to);
    });
}

// Rows in no segment.
void clear_uncovered(const std::vector<AttentionSegment>& segments, const AttentionShape& s,
                     const Outputs& to) {
    std::vector<char> covered(static_cast<std::size_t>(s.q_rows), 0);
    for (const AttentionSegment& segment : segments) {
        std::fill_n(covered.begin() + segment.q_begin, segment.q_len, char{1});
    }
    for (std::int64_t row = 0; row < s.q_rows; ++row) {
        if (covered[static_cast<std::size_t>(row)]) continue;
        for (const Tensor& tensor : {to.out, to.writes.rounded}) {
            if (!tensor.defined()) continue;
            const Tensor rows = tensor.rows(row, 1);
            std::memset(rows.raw(), 0, rows.bytes());
        }
        for (std::int64_t head = 0; head < s.heads; ++head)
            to.lse.data<float>()[head * s.q_rows + row] = -kInfinity;
    }
}

}  // namespace

void attention_forward(Stream& stream, const Tensor& q, const Tensor& k, const Tensor& v,
                       const std::vector<AttentionSegment>& segments, float scale, Tensor out, Tensor lse,
                       ForwardWrites writes) {
    const AttentionShape shape = detail::attention_shape(q, k);
    stream.enqueue([in = Inputs{q, k, v, shape, scale}, segments, to = Outputs{out, lse, writes}] {
        if (!to.writes.merge) clear_uncovered(segments, in.shape, to);
        if (detail::multiplies_pairs(in.q)) {
            forward_segments<detail::PairTiles>(in, segments, to);
        } else {
            forward_segments<detail::FloatTiles>(in, segments, to);
        }
    });
}

}  // namespace tandem::ops::cpu
