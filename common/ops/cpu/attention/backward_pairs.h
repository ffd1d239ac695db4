// The backward of attention by products of pairs of bfloat16: the five products of a tile on the units for
// bfloat16, sums in float32, p and ds rounded to bfloat16 between them.
//
// Lanes are queries where the softmax is, so that lse and delta are vectors:
//
//   product         rows     lanes     inner index   left operand        right operand
//   s   = k q^T     keys     queries   columns       k as it lies        q_t
//   dp  = v dout^T  keys     queries   columns       v as it lies        dout_t
//   dv += p dout    keys     columns   queries       p as it was made    dout_pairs
//   dk += ds q      keys     columns   queries       ds as it was made   q_pairs
//   dq += ds^T k    queries  columns   keys          ds_pairs            k_pairs
//
// A left operand is read a pair at a time, so only its pairs matter. Words are pairs (pairs.h); head_dim is padded
// with zeros to `width`, a multiple of 16, and to 2 * `words`, `words` a multiple of 16.
//
// By AMX (amx.h) an element is a chain over steps of 32 of the inner index, which begin at its multiples; steps that a
// row sees nothing of may be left out.
#pragma once

#include <cstdint>

#include "common/ops/cpu/attention/kernels.h"
#include "common/ops/cpu/attention/unit_in_use.h"

namespace tandem::ops::detail {

inline constexpr std::int64_t kPairQueries = 128;  // rows of a query tile
inline constexpr std::int64_t kPairLanes = 32;     // queries of a panel of q_t and dout_t

// One query tile against one key tile, or what there is of it: row r sees the first visible + r * visible_step keys of
// the tile's kKeyTile, and none past the last key.
struct BackwardPairsTile {
    const std::uint32_t* q_t;         // [panels, words, kPairLanes], 0 past the rows
    const std::uint32_t* dout_t;      // likewise
    const std::uint32_t* q_pairs;     // [rows / 2 rounded up to 16, width], 0 past the rows
    const std::uint32_t* dout_pairs;  // likewise
    const std::uint32_t* k;           // [kKeyTile, words]; a row past the keys may hold anything
    const std::uint32_t* v;           // likewise
    const std::uint32_t* k_pairs;     // [keys / 2 rounded up to 16, width], 0 past the keys
    const float* shift;               // [panels * kPairLanes]: -lse log2(e); -inf for a row that sees nothing
    const float* delta;               // [panels * kPairLanes]
    float* dq;                        // [kPairQueries, width] += gradient / scale; any in rows past the last
    float* dk;                        // [kKeyTile, width] += gradient / scale, likewise
    float* dv;                        // [kKeyTile, width] +=, likewise
    std::uint32_t* p;                 // scratch [kKeyTile, kPairQueries / 2]
    std::uint32_t* ds;                // scratch [kKeyTile, kPairQueries / 2]
    std::uint32_t* ds_pairs;          // scratch [kKeyTile / 2, kPairQueries]
    std::int64_t rows, head_dim, width, words, visible, visible_step;
    float scale;  // of the scores, times log2(e)
};

// Rows of bfloat16, as its bits, `stride` elements apart.
struct PairRows {
    const std::uint16_t* from;
    std::int64_t stride, rows, head_dim;
};

struct BackwardPairsKernels {
    void (*tile)(const BackwardPairsTile&);
    // to[r] = row r [words], zero-padded.
    void (*pack_rows)(const PairRows& rows, std::int64_t words, std::uint32_t* to);
    // to [rows / 2 rounded up to 16, width]: each word is a column of two rows that follow each other; 0 past the last.
    void (*pack_pairs)(const PairRows& rows, std::int64_t width, std::uint32_t* to);
    // to as q_t of BackwardPairsTile.
    void (*pack_turned)(const PairRows& rows, std::int64_t words, std::uint32_t* to);
    // to[r] += factor * from[r]; rows of `to` are `stride` floats apart.
    void (*add_rows)(const float* from, std::int64_t width, std::int64_t rows, std::int64_t head_dim,
                     float factor, float* to, std::int64_t stride);
    UnitUse use = {};  // around calls of tile
};

extern const BackwardPairsKernels kBackwardPairsBf16;  // AVX512-BF16
extern const BackwardPairsKernels kBackwardAmx;

}  // namespace tandem::ops::detail
