// Attention of one token a sequence over a paged cache, on the CPU: a sequence meets the key tiles that
// attention_forward cuts, so its values are the same.
#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

#include "common/ops/attention.h"
#include "common/ops/cpu/attention/pair_tiles.h"
#include "common/ops/cpu/attention/tile.h"
#include "common/ops/cpu/parallel.h"
#include "common/ops/cpu/rope_rows.h"

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

// New tokens that are not in the cache yet, and not rotated, nor is q.
struct NewTokens {
    Tensor k, v;
    std::shared_ptr<const RopeTable::Rows> rope;
};

struct Steps {
    Tensor q, k_cache, v_cache, out;
    const std::vector<std::vector<std::int32_t>>* block_tables;
    const std::vector<std::int32_t>* lengths;
    AttentionShape shape;
    float scale;
    NewTokens fresh = {};
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

// The item's heads of q and of the new key are rotated, and its new key and value go to the cache.
void place_token(const Steps& in, const Item& item) {
    const AttentionShape& s = in.shape;
    const std::int64_t position = (*in.lengths)[static_cast<std::size_t>(item.sequence)] - 1;
    const std::int64_t page_size = in.k_cache.dim(1);
    const auto& pages = (*in.block_tables)[static_cast<std::size_t>(item.sequence)];
    thread_local Scratch scratch;
    float* const memory = scratch.floats((item.count * s.group + 1) * s.head_dim);
    const float* const row = detail::rope_row(*in.fresh.rope, position, memory);
    float* const wide = memory + s.head_dim;
    const std::int64_t query = (item.sequence * s.heads + item.first * s.group) * s.head_dim;
    detail::rotate_heads(in.q, query, item.count * s.group, row, 1.0f, wide);
    const std::int64_t from = (item.sequence * s.kv_heads + item.first) * s.head_dim;
    detail::rotate_heads(in.fresh.k, from, item.count, row, 1.0f, wide);

    const std::int64_t slot =
        pages[static_cast<std::size_t>(position / page_size)] * page_size + position % page_size;
    const std::int64_t to = (slot * s.kv_heads + item.first) * s.head_dim;
    const auto bytes = [&](std::int64_t elements) {
        return static_cast<std::size_t>(elements) * dtype_size(in.q.dtype());
    };
    const std::size_t size = bytes(item.count * s.head_dim);
    std::memcpy(in.k_cache.raw() + bytes(to), in.fresh.k.raw() + bytes(from), size);
    std::memcpy(in.v_cache.raw() + bytes(to), in.fresh.v.raw() + bytes(from), size);
}

detail::PagesInTurn pages_in_turn(const Steps& in, const Item& item) {
    const std::vector<std::vector<std::int32_t>>& tables = *in.block_tables;
    const auto sequence = static_cast<std::size_t>(item.sequence);
    const std::size_t next = sequence + static_cast<std::size_t>(compute_threads());
    const std::int64_t page_size = in.k_cache.dim(1), length = (*in.lengths)[sequence];
    return {tables[sequence], (length + page_size - 1) / page_size,
            next < tables.size() ? &tables[next] : nullptr};
}

// Keys are the outer loop: heads lie side by side in a page, which is read once from its beginning to its end.
template <typename Tiles>
void decode_heads(const Tiles& tiles, const Steps& in, const Item& item) {
    const AttentionShape& s = in.shape;
    const std::int64_t length = (*in.lengths)[static_cast<std::size_t>(item.sequence)];
    const auto& pages = (*in.block_tables)[static_cast<std::size_t>(item.sequence)];
    thread_local Scratch scratch;
    thread_local std::vector<GroupTile> groups;
    make_tiles(tiles, in, item, scratch, groups);
    typename Tiles::Page page(tiles);
    const detail::PagesInTurn in_turn = pages_in_turn(in, item);
    for (std::int64_t key = 0; key < length; key += kKeyTile) {
        const std::int64_t count = std::min(kKeyTile, length - key);
        if (item.count == s.kv_heads) page.read(in.k_cache, in.v_cache, in_turn, key, count);
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
        const Item one{item / parts, item % parts * heads, heads};
        if (in.fresh.rope) place_token(in, one);
        decode_heads(tiles, in, one);
    });
}

void decode(const Steps& in) {
    if (detail::multiplies_pairs(in.q)) {
        return detail::takes_pair_rows(in.shape) ? decode_steps<detail::PairRowTiles>(in)
                                                 : decode_steps<detail::PairTiles>(in);
    }
    return detail::FloatRowTiles::takes(in.shape) ? decode_steps<detail::FloatRowTiles>(in)
                                                  : decode_steps<detail::FloatTiles>(in);
}

// Copies the tables only for a stream that runs later.
void enqueue(Stream& stream, const Steps& steps) {
    if (stream.is_inline()) return decode(steps);
    stream.enqueue([in = steps, tables = *steps.block_tables, lengths = *steps.lengths]() mutable {
        in.block_tables = &tables;
        in.lengths = &lengths;
        decode(in);
    });
}

}  // namespace

void paged_attention_decode(Stream& stream, const Tensor& q, const Tensor& k_cache, const Tensor& v_cache,
                            const std::vector<std::vector<std::int32_t>>& block_tables,
                            const std::vector<std::int32_t>& lengths, float scale, Tensor out) {
    enqueue(stream,
            {q, k_cache, v_cache, out, &block_tables, &lengths, detail::attention_shape(q, k_cache), scale});
}

void rotate_and_decode(Stream& stream, Tensor q, Tensor k, const Tensor& v, Tensor k_cache, Tensor v_cache,
                       const std::vector<std::vector<std::int32_t>>& block_tables,
                       const std::vector<std::int32_t>& lengths, const RopeTable& table, float scale,
                       Tensor out) {
    if (lengths.empty()) return;
    const AttentionShape shape = detail::attention_shape(q, k_cache);
    auto rope = table.rows(*std::max_element(lengths.begin(), lengths.end()));
    enqueue(stream,
            {q, k_cache, v_cache, out, &block_tables, &lengths, shape, scale, {k, v, std::move(rope)}});
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
