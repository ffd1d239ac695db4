// The inner loops of attention, compiled once per instruction set. Everything here is fp32 and packed by
// pack.h: head_dim is padded with zeros to `width`, a multiple of 16; key tiles hold kKeyTile keys,
// short ones zero-padded.
#pragma once

#include <cstdint>

#include "common/ops/cpu/attention/key_rows.h"

namespace tandem::ops::detail {

inline constexpr std::int64_t kQueryTile = 48;
inline constexpr std::int64_t kStateRows = 16;  // of which max and sum hold whole vectors

// One query tile against one key tile. Row r sees the first visible + r * visible_step keys of the tile.
struct ForwardTile {
    const float* q;    // [rows, width], times the softmax scale
    const float* k_t;  // [head_dim, kKeyTile]
    const float* v;    // [kKeyTile, width]
    float* acc;        // [rows, width]: sum of exp(s - max) v so far
    float* max;        // [rows up to whole kStateRows], -inf at the start
    float* sum;        // [as max]: sum of exp(s - max) so far
    float* scores;     // scratch [rows, kKeyTile]
    std::int64_t rows, head_dim, width, visible, visible_step;
    std::int64_t keys;  // keys in the tile; a row sees at most these
};

struct BackwardTile {
    const float* q;      // [rows, width], unscaled
    const float* dout;   // [rows, width]
    const float* k;      // [kKeyTile, width]
    const float* k_t;    // [head_dim, kKeyTile]
    const float* v_t;    // [head_dim, kKeyTile]
    const float* lse;    // [rows]
    const float* delta;  // [rows]
    float* dq;           // [rows, width] +=
    float* dk;           // [kKeyTile, width] +=
    float* dv;           // [kKeyTile, width] +=
    float* scores;       // scratch [rows, kKeyTile]
    float* dscores;      // scratch [rows, kKeyTile]
    std::int64_t rows, head_dim, width, visible, visible_step;
    std::int64_t keys;
    float scale;
};

// Of rows_tile: what head_dim is a multiple of.
inline constexpr std::int64_t kRowColumns = 32;

struct AttentionKernels {
    void (*forward_tile)(const ForwardTile&);
    // As forward_tile, bit for bit, with keys that lie in a cache. Of the tile v is not used, nor k_t: keys are turned in
    // `turned` [head_dim, kKeyTile]. head_dim: a multiple of kRowColumns.
    void (*rows_tile)(const ForwardTile&, const KeyRows&, float* turned);
    void (*backward_tile)(const BackwardTile&);
    // to[d][j] = from[j][d] for j < keys, 0 for the rest of kKeyTile; rows of `from` are `stride` floats
    // apart, and can be read up to head_dim rounded up to 16.
    void (*transpose_tile)(const float* from, std::int64_t stride, std::int64_t keys, std::int64_t head_dim,
                           float* to);
    // to[r] = factor * from[r], zero-padded to `width`; rows of `from` (float32, or bfloat16 as its bits) are
    // `stride` elements apart.
    void (*pack_float)(const float* from, std::int64_t stride, std::int64_t rows, std::int64_t head_dim,
                       std::int64_t width, float factor, float* to);
    void (*pack_bfloat16)(const std::uint16_t* from, std::int64_t stride, std::int64_t rows,
                          std::int64_t head_dim, std::int64_t width, float factor, float* to);
    const char* name;
};

extern const AttentionKernels kAttentionBaseline;
extern const AttentionKernels kAttentionAvx2;
extern const AttentionKernels kAttentionAvx512;

}  // namespace tandem::ops::detail
