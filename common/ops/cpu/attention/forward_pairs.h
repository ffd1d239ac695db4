// The inner loops of attention's forward, prefill and decode by products of pairs of bfloat16 (pairs.h): kernels that
// are compiled for AVX512-BF16 and for AMX, and by tests for any machine. head_dim is even.
//
// Many queries lie in lanes (QueryLanes), so that the softmax is plain vector arithmetic; a few lie in rows
// (QueryRows), with keys in lanes. A row has the same bits either way: every score is one chain over the pairs of
// head_dim, every result one chain over the pairs of keys of each tile, and the sum over a tile's keys goes by key
// modulo 16, then over neighbours.
//
// By AMX all queries lie in lanes. Its chains are others (amx.h), each over 32 numbers of head_dim or 32 keys that
// begin at a multiple of 32; what does not count within them is 0.
//
// The scale counts powers of two: scores are q·k · scale, and probabilities 2^(score - max).
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/ops/cpu/attention/kernels.h"
#include "common/ops/cpu/attention/unit_in_use.h"

namespace tandem::ops::detail {

inline constexpr std::int64_t kLaneQueries = 64;

// A tile of queries against a key tile. Query i sees the first visible + i * visible_step keys of the tile.
struct QueryLanes {
    const std::uint32_t* q;  // [lane_pairs(head_dim), kLaneQueries] pairs, as pack_lanes leaves them
    const std::uint16_t* const*
        k;  // rows [head_dim] of keys; past the last to a multiple of 16 any that can be read
    const std::uint32_t*
        v_t;           // [head_dim rounded up to 16, kKeyTile / 2] pairs of keys; any in rows past head_dim
    float* acc;        // [head_dim rounded up to 16, kLaneQueries]: sum of 2^(s - max) v so far
    float* max;        // [kLaneQueries], -inf at the start
    float* sum;        // [kLaneQueries]: sum of 2^(s - max) so far
    float* scores;     // scratch [kKeyTile, kLaneQueries]
    std::uint32_t* p;  // scratch [kKeyTile / 2, kLaneQueries]
    std::int64_t queries, head_dim, visible, visible_step;
    std::int64_t keys;  // in the tile; a query sees at most these
    float scale;        // above 0
};

// Rows of QueryLanes' q.
inline constexpr std::int64_t lane_pairs(std::int64_t head_dim) {
    return (head_dim + 31) / 32 * 16;
}

// Queries that see all keys of a tile. Keys lie as in a cache: 16 at a time, their rows [head_dim] `stride` apart.
struct QueryRows {
    const std::uint32_t* q;         // [queries, head_dim / 2] pairs
    const std::uint16_t* const* k;  // the first row of each 16 keys; all 16 can be read
    const std::uint16_t* const* v;  // likewise; rows past the last key are not read
    std::int64_t stride;
    float* acc;  // [queries, row_width(head_dim)]
    float* max;  // [queries]
    float* sum;  // [queries]
    std::int64_t queries, head_dim, keys;
    float scale;
    // What the thread reads next, kKeyRows rows [head_dim] side by side at each address: asked for a little at a time, as
    // memory gives it. Null: nothing.
    const std::byte* const* next_k = nullptr;  // [kKeyVectors]
    const std::byte* const* next_v = nullptr;
};

// Numbers: rows as far apart as this, or a multiple, meet in so few sets of the first cache that the 64 of a tile put each
// other out (8 heads of 128: Qwen3, Llama 3). Then a line of each is used up before the next is touched, which takes a
// third less time there and a tenth more elsewhere.
inline constexpr std::int64_t kLineStride = 512;

// A row of sums in QueryRows: of each 32 columns first the even ones, then the odd ones.
inline constexpr std::int64_t row_width(std::int64_t head_dim) {
    return (head_dim + 31) / 32 * 32;
}

struct ForwardPairs {
    bool (*runs_here)();
    // to [lane_pairs(head_dim), kLaneQueries]: the rows' pairs in lanes, 0 past the last row and pair; their bits
    // xor `flip`, which changes the sign of both or of none.
    void (*pack_lanes)(const std::uint16_t* from, std::int64_t stride, std::int64_t rows,
                       std::int64_t head_dim, std::uint32_t flip, std::uint32_t* to);
    // As v_t of QueryLanes, from rows [head_dim]; 0 past the last key.
    void (*pack_values)(const std::uint16_t* const* rows, std::int64_t keys, std::int64_t head_dim,
                        std::uint32_t* to);
    void (*lanes_tile)(const QueryLanes&);
    // to[r] = the sums of query r, [head_dim]; rows of `to` are `width`, a multiple of 16, apart.
    void (*unpack_lanes)(const float* acc, std::int64_t queries, std::int64_t head_dim, std::int64_t width,
                         float* to);
    void (*rows_tile)(const QueryRows&);  // null, as is the next one, where all queries lie in lanes
    void (*unpack_row)(const float* acc, std::int64_t head_dim, float* to);  // to [row_width(head_dim)]

    UnitUse use = {};  // around calls of lanes_tile
};

extern const ForwardPairs kForwardPairs;
extern const ForwardPairs kForwardAmx;

}  // namespace tandem::ops::detail
