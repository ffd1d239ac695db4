// Our own products of few rows by weights of bfloat16 that pack_tiles packed. The library's kernels do not read ahead: a
// weight that is in no cache, as each is in a decode step, takes them up to twice as long. These ask for a part of it
// while they multiply the one before.
//
// Bits of kPairProducts: a sum of dot_pairs (attention/pairs.h) over the pairs of `chain` numbers of k in order, from 0;
// such sums are added in order. oneDNN's kernels for AVX512-BF16 do the same, with a chain that depends on k.
// Bits of kWidenedProducts, for machines without these instructions: as above, but each number of k is added in order, its
// product not rounded (fma), as oneDNN's kernels for float32 do with the same weight in twice the bytes. kWidenedProductsAvx2
// and kFloatProducts, for machines without AVX-512, have the same; there oneDNN's know no packed side, and ours multiply all.
#pragma once

#include <cstdint>

namespace tandem::ops::detail {

inline constexpr std::int64_t kMostPairRows = 64;
inline constexpr std::int64_t kPairChain = 128;
inline constexpr std::int64_t kMostPairColumns = 64;  // of a block of b

// c[rows, n] = a[rows, k] · b[k, n] + bias[n]
struct PairProduct {
    std::int64_t rows, n, k;     // rows: at most kMostPairRows
    std::int64_t columns;        // of a block of b: a multiple of 16, at most kMostPairColumns
    std::int64_t chain;          // a multiple of kPairChain
    const void* a;               // bfloat16; of all but kPairProducts float32
    const void* b;               // as pack_tiles leaves bfloat16; of kFloatProducts float32
    const float* bias;           // null: none
    float* c;                    // null: it goes to rounded_c
    std::uint16_t* rounded_c;    // bfloat16, rounded as narrow() rounds (rows.h)
    std::int64_t c_row;          // elements from a row of c to the next
    const char* next = nullptr;  // asked for at the end: what is probably multiplied next
};

struct PairProducts {
    bool (*runs_here)();
    void (*multiply)(const PairProduct&);
};

extern const PairProducts kPairProducts;     // AVX512-BF16
extern const PairProducts kWidenedProducts;  // AVX-512
extern const PairProducts kWidenedProductsAvx2, kFloatProducts;
inline constexpr std::int64_t kAvx2Columns = 16;  // of a block, for these two

}  // namespace tandem::ops::detail
