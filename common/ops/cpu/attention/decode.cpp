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
struct GroupTile {
    QueryTile tile;
    std::int64_t kv_head, head, rows;
};

// Of one sequence: kv heads [first, first + count).
struct Item {
    std::int64_t sequence, first, count;
};

// In the scratch's memory: queries packed, sums empty.
template <typename Tiles>
void make_tiles(const Tiles& tiles, const Steps& in, const Item& item, Scratch& scratch,
                std::vector<GroupTile>& result) {
    const AttentionShape& s = in.shape;
    const std::int64_t of_head = (s.group + Tiles::kQueries - 1) / Tiles::kQueries;
    const std::int64_t floats = item.count * of_head * tiles.tile_floats();
    float* memory = scratch.floats(floats + tiles.scratch_floats());
    float* const shared = memory + floats;
    result.clear();
    for (std::int64_t kv_head = item.first; kv_head < item.first + item.count; ++kv_head) {
        for (std::int64_t row = 0; row < s.group; row += Tiles::kQueries, memory += tiles.tile_floats()) {
            GroupTile& g = result.emplace_back();
            g.tile = tiles.place(memory, shared);
            g.kv_head = kv_head;
            g.head = kv_head * s.group + row;
            g.rows = std::min(Tiles::kQueries, s.group - row);
            tiles.load_heads(g.tile, in.q, item.sequence, g.head, g.rows);
        }
    }
}

// Keys are the outer loop: heads lie side by side in a page, which is read once from its beginning to its end.
template <typename Tiles>
void decode_heads(const Tiles& tiles, const Steps& in, const Item& item) {
    const AttentionShape& s = in.shape;
    const std::int64_t length = in.lengths[static_cast<std::size_t>(item.sequence)];
    const auto& pages = in.block_tables[static_cast<std::size_t>(item.sequence)];
    thread_local Scratch scratch;
    thread_local std::vector<GroupTile> groups;
    make_tiles(tiles, in, item, scratch, groups);
    typename Tiles::Page page(tiles);
    for (std::int64_t key = 0; key < length; key += kKeyTile) {
        const std::int64_t count = std::min(kKeyTile, length - key);
        if (item.count == s.kv_heads) detail::read_pages(in.k_cache, in.v_cache, pages, key, count);
        typename Tiles::KeyTile keys{};
        std::int64_t loaded = -1;
        for (GroupTile& g : groups) {
            if (g.kv_head != loaded) keys = page.load(in.k_cache, in.v_cache, pages, key, count, g.kv_head);
            loaded = g.kv_head;
            tiles.attend(g.tile, g.rows, keys, {.visible = count, .step = 0, .keys = count});
        }
    }
    for (GroupTile& g : groups) {
        tiles.finish(g.tile, g.rows);
        for (std::int64_t row = 0; row < g.rows; ++row) {
            detail::finish_tile_row(g.tile, row, s.width, in.out,
                                    (item.sequence * s.heads + g.head + row) * s.head_dim, s.head_dim);
        }
    }
}

// A sequence at a time; few sequences head by head, so that all threads have some.
template <typename Tiles>
void decode_steps(const Steps& in) {
    constexpr std::int64_t kMany = 4;  // a thread
    const Tiles tiles(in.shape, in.scale);
    const std::int64_t rows = in.shape.q_rows;
    const std::int64_t parts = rows < kMany * compute_threads() ? in.shape.kv_heads : 1;
    const std::int64_t heads = in.shape.kv_heads / parts;
    detail::parallel_for(rows * parts, [&](std::int64_t item) {
        decode_heads(tiles, in, {item / parts, item % parts * heads, heads});
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
        } else if (detail::takes_pair_rows(in.shape)) {
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
