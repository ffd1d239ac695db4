// attention_forward on the CPU: packing and the walk over tiles. The arithmetic is in kernels.inl.
//
// Key tiles always start at the segment's first key, so a query meets the same tiles in every call:
// attention_forward of a whole sequence, of a prefix, or paged_attention_decode of its last token.
#include "common/ops/attention.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "common/ops/cpu/attention/pack.h"
#include "common/ops/cpu/attention/tile.h"
#include "common/ops/cpu/parallel.h"
#include "common/ops/cpu/rows.h"

namespace tandem::ops::cpu {
namespace {

using detail::AttentionShape;
using detail::kKeyTile;
using detail::kQueryTile;
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

void forward_head(const Inputs& in, const AttentionSegment& segment, std::int64_t head,
                  const detail::PackedKeys& keys, const Outputs& to) {
    const AttentionShape& s = in.shape;
    const detail::AttentionKernels& kernels = detail::attention_kernels();
    QueryTile tile = detail::make_tile(s.width);
    for (std::int64_t first = 0; first < segment.q_len; first += kQueryTile) {
        const std::int64_t rows = std::min(kQueryTile, segment.q_len - first);
        const std::int64_t begin = segment.q_begin + first;
        detail::pack_rows(in.q, begin, rows, head, s.heads, s, in.scale, tile.q);
        detail::start_tile(tile, rows, s.width);
        // Row r sees keys [0, seen + r).
        const std::int64_t seen = segment.causal ? first + segment.k_len - segment.q_len + 1 : segment.k_len;
        const std::int64_t step = segment.causal ? 1 : 0;
        const std::int64_t last = std::min(segment.k_len, seen + step * (rows - 1));
        for (std::int64_t key = 0; key < last; key += kKeyTile) {
            const std::int64_t visible = std::min(seen, segment.k_len) - key;
            kernels.forward_tile({.q = tile.q,
                                  .k_t = keys.k_t(key),
                                  .v = keys.v(key),
                                  .acc = tile.acc,
                                  .max = tile.max,
                                  .sum = tile.sum,
                                  .scores = tile.scores,
                                  .rows = rows,
                                  .head_dim = s.head_dim,
                                  .width = s.width,
                                  .visible = visible,
                                  .visible_step = step,
                                  .keys = std::min(kKeyTile, segment.k_len - key)});
        }
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
        const AttentionShape& s = in.shape;
        if (!to.writes.merge) clear_uncovered(segments, s, to);
        const std::int64_t items = static_cast<std::int64_t>(segments.size()) * s.kv_heads;
        detail::parallel_for(items, [&](std::int64_t item) {
            const AttentionSegment& segment = segments[static_cast<std::size_t>(item / s.kv_heads)];
            const std::int64_t kv_head = item % s.kv_heads;
            thread_local Scratch scratch;
            const detail::PackedKeys keys(in.k, in.v, segment.k_begin, segment.k_len, kv_head, s, scratch);
            for (std::int64_t g = 0; g < s.group; ++g) {
                forward_head(in, segment, kv_head * s.group + g, keys, to);
            }
        });
    });
}

}  // namespace tandem::ops::cpu
