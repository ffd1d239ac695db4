// Attention of pieces of sequences over a paged cache, on the CPU. A row meets the key tiles that
// attention_forward cuts, in the same order, so its values are the same.
//
// Here keys are the outer loop: a tile is packed once for all rows of a strip, and stays in the first cache
// meanwhile. Packing all keys first, as for a whole sequence, would take memory for all of them in every
// piece.
#include <algorithm>
#include <vector>

#include "common/ops/attention.h"
#include "common/ops/cpu/attention/pair_tiles.h"
#include "common/ops/cpu/attention/tile.h"
#include "common/ops/cpu/parallel.h"

namespace tandem::ops::cpu {
namespace {

using detail::AttentionShape;
using detail::kKeyTile;
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
template <typename Tiles>
std::int64_t strip_rows(const Tiles& tiles, const std::vector<PagedSegment>& segments,
                        const AttentionShape& s) {
    std::int64_t rows = 0;
    for (const PagedSegment& segment : segments) rows += segment.q_len;
    const std::int64_t fit = kStripFloats / (tiles.tile_floats() * s.group);  // tiles
    const std::int64_t share = (rows * s.kv_heads + compute_threads() - 1) / compute_threads();
    return std::max(std::min(fit, (share + Tiles::kQueries - 1) / Tiles::kQueries), std::int64_t{1}) *
           Tiles::kQueries;
}

// Those with most keys, the last of a segment, first.
std::vector<Strip> cut_strips(const std::vector<PagedSegment>& segments, std::int64_t kv_heads,
                              std::int64_t most) {
    std::vector<Strip> strips;
    for (const PagedSegment& segment : segments) {
        for (std::int64_t end = segment.q_len; end > 0;) {
            const std::int64_t first = (end - 1) / most * most;
            for (std::int64_t kv_head = 0; kv_head < kv_heads; ++kv_head)
                strips.push_back({&segment, kv_head, first, end - first});
            end = first;
        }
    }
    return strips;
}

// In the scratch's memory: queries packed, sums empty.
template <typename Tiles>
std::vector<StripTile> make_tiles(const Tiles& tiles, const Pieces& in, const Strip& strip,
                                  Scratch& scratch) {
    const std::int64_t of_head = (strip.rows + Tiles::kQueries - 1) / Tiles::kQueries;
    const std::int64_t floats = of_head * in.shape.group * tiles.tile_floats();
    float* memory = scratch.floats(floats + tiles.scratch_floats());
    float* const shared = memory + floats;
    std::vector<StripTile> result;
    for (std::int64_t g = 0; g < in.shape.group; ++g) {
        for (std::int64_t row = 0; row < strip.rows; row += Tiles::kQueries, memory += tiles.tile_floats()) {
            StripTile& t = result.emplace_back();
            t.tile = tiles.place(memory, shared);
            t.head = strip.kv_head * in.shape.group + g;
            t.first = strip.first + row;
            t.rows = std::min(Tiles::kQueries, strip.rows - row);
            tiles.load(t.tile, in.q, strip.segment->q_begin + t.first, t.rows, t.head);
        }
    }
    return result;
}

template <typename Tiles>
void attend_strip(const Tiles& tiles, const Pieces& in, const Strip& strip) {
    const AttentionShape& s = in.shape;
    const PagedSegment& segment = *strip.segment;
    thread_local Scratch scratch;
    typename Tiles::Page page(tiles);
    std::vector<StripTile> strip_tiles = make_tiles(tiles, in, strip, scratch);
    const std::int64_t before = segment.k_len - segment.q_len;
    const std::int64_t end = before + strip.first + strip.rows;  // what the last row sees
    for (std::int64_t key = 0; key < end; key += kKeyTile) {
        const std::int64_t count = std::min(kKeyTile, end - key);
        const auto keys = page.load(in.k_cache, in.v_cache, segment.pages, key, count, strip.kv_head);
        for (StripTile& t : strip_tiles) {
            const std::int64_t visible = before + t.first + 1 - key;  // to its first row
            if (visible + t.rows - 1 <= 0) continue;
            tiles.attend(t.tile, t.rows, keys, {.visible = visible, .step = 1, .keys = count});
        }
    }
    for (StripTile& t : strip_tiles) {
        tiles.finish(t.tile, t.rows);
        for (std::int64_t row = 0; row < t.rows; ++row) {
            const std::int64_t at = segment.q_begin + t.first + row;
            detail::finish_tile_row(t.tile, row, s.width, in.out, (at * s.heads + t.head) * s.head_dim,
                                    s.head_dim);
        }
    }
}

template <typename Tiles>
void attend_pieces(const Pieces& pieces, const std::vector<PagedSegment>& segments) {
    const Tiles tiles(pieces.shape, pieces.scale);
    const std::vector<Strip> strips =
        cut_strips(segments, pieces.shape.kv_heads, strip_rows(tiles, segments, pieces.shape));
    detail::parallel_for(static_cast<std::int64_t>(strips.size()), [&](std::int64_t item) {
        attend_strip(tiles, pieces, strips[static_cast<std::size_t>(item)]);
    });
}

}  // namespace

void paged_attention_prefill(Stream& stream, const Tensor& q, const Tensor& k_cache, const Tensor& v_cache,
                             const std::vector<PagedSegment>& segments, float scale, Tensor out) {
    const Pieces pieces{q, k_cache, v_cache, out, detail::attention_shape(q, k_cache), scale};
    stream.enqueue([pieces, segments] {
        if (detail::multiplies_pairs(pieces.q)) {
            attend_pieces<detail::PairTiles>(pieces, segments);
        } else {
            attend_pieces<detail::FloatTiles>(pieces, segments);
        }
    });
}

}  // namespace tandem::ops::cpu
