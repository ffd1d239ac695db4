// Matmuls with a plain left operand, cut so that a row of c depends on its row of a and on b alone: columns
// of b in chunks that (n, k, dtype) fix and a core's cache holds, rows in blocks (row_blocks.h), every kernel
// on one thread. Neither the threads that share the pieces nor whether b was packed before changes a bit.
#pragma once

#include <span>

#include "common/ops/cpu/product_library.h"

namespace tandem::ops::detail {

// c[m, n] = a[m, k] · b[k, n] (+ bias[n]), or += with accumulate. All contiguous; no dim is 0.
struct PlainProduct {
    std::int64_t m, n, k;
    DType input, output;  // of a, b, bias; of c
    const std::byte* a;
    const std::byte* b;
    WeightLayout layout;      // of b as it is stored: rows or columns
    const std::byte* packed;  // b as pack_columns wrote it; null: none
    const std::byte* bias;    // null: none
    std::byte* c;
    bool accumulate;
    int threads;
};

// Products of the same a, input and threads, side by side in one parallel section: each as it would be alone.
// bfloat16 is widened where the library has no kernels for it. Returns false, with every c untouched, if it has none for
// float32 either.
bool multiply(const ProductLibrary& library, std::span<const PlainProduct> products);
inline bool multiply(const ProductLibrary& library, const PlainProduct& product) {
    return multiply(library, std::span(&product, 1));
}

// widen (rows.h) by the compute threads.
void widen_on_threads(const bfloat16* from, float* to, std::int64_t count);

// Packed size of a weight stored as [n, k], 0 if it is read as it is.
std::size_t packed_columns_bytes(const ProductLibrary& library, std::int64_t n, std::int64_t k, DType dtype);
void pack_columns(const ProductLibrary& library, std::int64_t n, std::int64_t k, DType dtype,
                  const std::byte* from, std::byte* to);

}  // namespace tandem::ops::detail
