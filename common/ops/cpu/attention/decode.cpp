// Attention of one token a sequence over a paged cache, on the CPU: a sequence meets the key tiles that
// attention_forward cuts, so its values are the same.
#include <algorithm>

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

std::vector<std::vector<std::int32_t>> tables_of(const Tensor& pages) {
    std::vector<std::vector<std::int32_t>> result;
    const auto all = pages.values<std::int32_t>();
    const auto width = static_cast<std::size_t>(pages.dim(1));
    for (std::size_t at = 0; at < all.size(); at += width)
        result.emplace_back(all.begin() + static_cast<std::ptrdiff_t>(at),
                            all.begin() + static_cast<std::ptrdiff_t>(at + width));
    result.resize(static_cast<std::size_t>(pages.dim(0)));
    return result;
}

struct Steps {
    Tensor q, k_cache, v_cache, out;
    std::vector<std::vector<std::int32_t>> block_tables;
    std::vector<std::int32_t> lengths;
    AttentionShape shape;
    float scale;
};

// The heads of a group share their keys: they are the rows of one tile, or of several.
template <typename Tiles>
void decode_group(const Tiles& tiles, const Steps& in, std::int64_t sequence, std::int64_t kv_head) {
    const AttentionShape& s = in.shape;
    const std::int64_t length = in.lengths[static_cast<std::size_t>(sequence)];
    const auto& pages = in.block_tables[static_cast<std::size_t>(sequence)];
    thread_local Scratch scratch;
    float* const memory = scratch.floats(tiles.tile_floats() + tiles.scratch_floats());
    typename Tiles::Page page(tiles);
    for (std::int64_t first = 0; first < s.group; first += Tiles::kQueries) {
        const std::int64_t rows = std::min(Tiles::kQueries, s.group - first);
        const std::int64_t head = kv_head * s.group + first;
        QueryTile tile = tiles.place(memory, memory + tiles.tile_floats());
        tiles.load_heads(tile, in.q, sequence, head, rows);
        for (std::int64_t key = 0; key < length; key += kKeyTile) {
            const std::int64_t count = std::min(kKeyTile, length - key);
            tiles.attend(tile, rows, page.load(in.k_cache, in.v_cache, pages, key, count, kv_head),
                         {.visible = count, .step = 0, .keys = count});
        }
        tiles.finish(tile, rows);
        for (std::int64_t row = 0; row < rows; ++row) {
            detail::finish_tile_row(tile, row, s.width, in.out,
                                    (sequence * s.heads + head + row) * s.head_dim, s.head_dim);
        }
    }
}

template <typename Tiles>
void decode_steps(const Steps& in) {
    const Tiles tiles(in.shape, in.scale);
    const std::int64_t kv_heads = in.shape.kv_heads;
    detail::parallel_for(in.shape.q_rows * kv_heads, [&](std::int64_t item) {
        decode_group(tiles, in, item / kv_heads, item % kv_heads);
    });
}

}  // namespace

void paged_attention_decode(Stream& stream, const Tensor& q, const Tensor& k_cache, const Tensor& v_cache,
                            const std::vector<std::vector<std::int32_t>>& block_tables,
                            const std::vector<std::int32_t>& lengths, float scale, Tensor out) {
    const AttentionShape shape = detail::attention_shape(q, k_cache);
    stream.enqueue([in = Steps{q, k_cache, v_cache, out, block_tables, lengths, shape, scale}] {
        if (!detail::multiplies_pairs(in.q)) {
            decode_steps<detail::FloatTiles>(in);
        } else if (detail::has_pair_rows()) {
            decode_steps<detail::PairRowTiles>(in);
        } else {
            decode_steps<detail::PairTiles>(in);
        }
    });
}

// The tables are read, and checked, when the stream gets there.
void paged_attention_decode(Stream& stream, const Tensor& q, const Tensor& k_cache, const Tensor& v_cache,
                            const Tensor& pages, const Tensor& lengths, float scale, Tensor out) {
    stream.enqueue([=] {
        Stream here = Stream::make_inline();
        ops::paged_attention_decode(here, q, k_cache, v_cache, tables_of(pages),
                                    lengths.to_vector<std::int32_t>(), scale, out);
    });
}

}  // namespace tandem::ops::cpu
