// Attention of pieces of sequences over a paged cache, on the CPU. A row meets the key tiles that
// attention_forward cuts, in the same order, so its values are the same.
//
// Here keys are the outer loop: a tile is packed once for all rows of a strip, and stays in the first cache
// meanwhile. Packing all keys first, as for a whole sequence, would take memory for all of them in every
// piece.
#include <algorithm>
#include <vector>

#include "common/ops/attention.h"
#include "common/ops/cpu/attention/pack.h"
#include "common/ops/cpu/attention/tile.h"
#include "common/ops/cpu/parallel.h"

namespace tandem::ops::cpu {
namespace {

using detail::AttentionShape;
using detail::kKeyTile;
using detail::kQueryTile;
using detail::QueryTile;
using detail::Scratch;

// Of a strip's queries and sums: half of a small second cache.
constexpr std::int64_t kStripFloats = (512 << 10) / sizeof(float);

struct Pieces {
    Tensor q, k_cache, v_cache, out;
    AttentionShape shape;
    float scale;
};

// Rows [first, first + rows) of a segment, for the heads that share one kv head.
struct Strip {
    const PagedSegment* segment;
    std::int64_t kv_head, first, rows;
};

// Some rows of a strip, of one head.
struct StripTile {
    QueryTile tile;
    std::int64_t head, first, rows;
};

// As many rows as the cache holds, but enough strips for all threads. It changes no bit.
std::int64_t strip_rows(const std::vector<PagedSegment>& segments, const AttentionShape& s) {
    std::int64_t rows = 0;
    for (const PagedSegment& segment : segments) rows += segment.q_len;
    const std::int64_t fit = kStripFloats / (2 * s.width * s.group);
    const std::int64_t share = (rows * s.kv_heads + compute_threads() - 1) / compute_threads();
    return std::max((std::min(fit, share) + kQueryTile - 1) / kQueryTile, std::int64_t{1}) * kQueryTile;
}

// Those with most keys, the last of a segment, first.
std::vector<Strip> cut_strips(const std::vector<PagedSegment>& segments, const AttentionShape& s) {
    const std::int64_t most = strip_rows(segments, s);
    std::vector<Strip> strips;
    for (const PagedSegment& segment : segments) {
        for (std::int64_t end = segment.q_len; end > 0;) {
            const std::int64_t first = (end - 1) / most * most;
            for (std::int64_t kv_head = 0; kv_head < s.kv_heads; ++kv_head)
                strips.push_back({&segment, kv_head, first, end - first});
            end = first;
        }
    }
    return strips;
}

// In the scratch's memory: queries packed, sums empty.
std::vector<StripTile> make_tiles(const Pieces& in, const Strip& strip, Scratch& scratch) {
    const AttentionShape& s = in.shape;
    const std::int64_t of_head = (strip.rows + kQueryTile - 1) / kQueryTile;
    const std::int64_t tile_floats = kQueryTile * 2 * s.width;
    float* memory = scratch.floats(of_head * s.group * tile_floats + kQueryTile * kKeyTile);
    float* const scores = memory + of_head * s.group * tile_floats;
    std::vector<StripTile> tiles;
    for (std::int64_t g = 0; g < s.group; ++g) {
        for (std::int64_t row = 0; row < strip.rows; row += kQueryTile, memory += tile_floats) {
            StripTile& t = tiles.emplace_back();
            t.tile = {memory, memory + kQueryTile * s.width, scores, {}, {}};
            t.head = strip.kv_head * s.group + g;
            t.first = strip.first + row;
            t.rows = std::min(kQueryTile, strip.rows - row);
            detail::pack_rows(in.q, strip.segment->q_begin + t.first, t.rows, t.head, s.heads, s, in.scale,
                              t.tile.q);
            detail::start_tile(t.tile, t.rows, s.width);
        }
    }
    return tiles;
}

void attend_strip(const Pieces& in, const Strip& strip) {
    const AttentionShape& s = in.shape;
    const PagedSegment& segment = *strip.segment;
    const detail::AttentionKernels& kernels = detail::attention_kernels();
    thread_local Scratch page_scratch, tile_scratch;
    detail::PackedPage page(s, page_scratch);
    std::vector<StripTile> tiles = make_tiles(in, strip, tile_scratch);
    const std::int64_t before = segment.k_len - segment.q_len;
    const std::int64_t end = before + strip.first + strip.rows;  // what the last row sees
    for (std::int64_t key = 0; key < end; key += kKeyTile) {
        const std::int64_t count = std::min(kKeyTile, end - key);
        page.load(in.k_cache, in.v_cache, segment.pages, key, count, strip.kv_head);
        for (StripTile& t : tiles) {
            const std::int64_t visible = before + t.first + 1 - key;  // to its first row
            if (visible + t.rows - 1 <= 0) continue;
            kernels.forward_tile({.q = t.tile.q,
                                  .k_t = page.k_t(),
                                  .v = page.v(),
                                  .acc = t.tile.acc,
                                  .max = t.tile.max,
                                  .sum = t.tile.sum,
                                  .scores = t.tile.scores,
                                  .rows = t.rows,
                                  .head_dim = s.head_dim,
                                  .width = s.width,
                                  .visible = visible,
                                  .visible_step = 1,
                                  .keys = count});
        }
    }
    for (const StripTile& t : tiles) {
        for (std::int64_t row = 0; row < t.rows; ++row) {
            const std::int64_t at = segment.q_begin + t.first + row;
            detail::finish_tile_row(t.tile, row, s.width, in.out, (at * s.heads + t.head) * s.head_dim,
                                    s.head_dim);
        }
    }
}

}  // namespace

void paged_attention_prefill(Stream& stream, const Tensor& q, const Tensor& k_cache, const Tensor& v_cache,
                             const std::vector<PagedSegment>& segments, float scale, Tensor out) {
    const Pieces pieces{q, k_cache, v_cache, out, detail::attention_shape(q, k_cache), scale};
    stream.enqueue([pieces, segments] {
        const std::vector<Strip> strips = cut_strips(segments, pieces.shape);
        detail::parallel_for(static_cast<std::int64_t>(strips.size()), [&](std::int64_t item) {
            attend_strip(pieces, strips[static_cast<std::size_t>(item)]);
        });
    });
}

}  // namespace tandem::ops::cpu
