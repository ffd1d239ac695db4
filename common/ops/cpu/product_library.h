// The interface to the library that multiplies matrices on this machine, as a table of functions. onednn.cpp
// fills one in for oneDNN 2 and 3; tests pass their own. A library may sum in any order: row_blocks.h makes
// rows independent of it.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "common/tensor/dtype.h"

namespace tandem::ops::detail {

// How a right-hand side [k, n] lies in memory.
enum class WeightLayout : std::uint8_t {
    rows,     // [k, n]
    columns,  // [n, k]: a weight [out, in] as it is stored
    packed,   // in the library's own layout for (n, k, dtype)
    pairs,    // float32 whose low halves are 0, kept as pack_tiles packs bfloat16, in blocks of tile_columns
};

struct RightSide {
    std::int64_t n, k;
    DType dtype;
    WeightLayout layout;
    auto operator<=>(const RightSide&) const = default;
};

// c[m, n] = op(a)[m, k] · b[k, n], or += with accumulate. All are contiguous, a of b's dtype.
struct Product {
    std::int64_t m;
    bool transpose_a;
    RightSide b;
    bool accumulate;
    DType output;
    int threads;  // that it may use: part of a library's plan
    auto operator<=>(const Product&) const = default;
};

// Where rows of a product end up.
struct Destination {
    std::byte* c;
    std::int64_t stride;  // elements from a row of c to the next
    DType dtype;          // of c: float32, or bfloat16, rounded as narrow() rounds (rows.h)
    const float* bias;    // [n], added before c is rounded; null: none
    // The right-hand side that this thread probably multiplies by next: where it begins, so that it can be asked
    // for; null: not known.
    const std::byte* next = nullptr;
};

// Made for one product; for one thread at a time.
class ProductKernel {
  public:
    virtual ~ProductKernel() = default;
    virtual void run(const std::byte* a, const std::byte* b, std::byte* c) = 0;
    // The first `rows` rows of c, where they belong. False, with nothing done, by kernels that only `run`.
    virtual bool run_to(std::int64_t /*rows*/, const std::byte* /*a*/, const std::byte* /*b*/,
                        const Destination& /*to*/) {
        return false;
    }
};

struct ProductLibrary {
    // Null where the library has no fast kernel for it. float32 with a layout of rows or columns: never null.
    std::unique_ptr<ProductKernel> (*make)(const Product& product);
    // Size of [k, n] in the packed layout; 0: the library has none.
    std::size_t (*packed_bytes)(std::int64_t n, std::int64_t k, DType dtype);
    // `from` lies as side.layout says (rows or columns), each `stride` elements after the one before.
    void (*pack)(const RightSide& side, std::int64_t stride, const std::byte* from, std::byte* to);
    // Where the packed layout of float32 [k, n] is pack_tiles' one: the columns of a block. 0 elsewhere.
    std::int64_t (*tile_columns)(std::int64_t n, std::int64_t k) = [](std::int64_t, std::int64_t) {
        return std::int64_t{0};
    };
};

const ProductLibrary& onednn();

// Where oneDNN packs [k, n] as pack_tiles does and multiplies it without AMX: the columns of a block. 0 elsewhere.
std::int64_t onednn_tile_columns(std::int64_t n, std::int64_t k, DType dtype);

// Whether this machine runs AVX2 and oneDNN packs nothing on it; and what then multiplies by packed sides: our own kernels
// (pair_products.h), which need a CPU with AVX2.
bool avx2_products_needed();
const ProductLibrary& avx2_products();

// What this process multiplies by: avx2_products where they are needed, and elsewhere oneDNN, but with our own kernels for
// up to 64 rows, wherever a trial at the first use of a side has the same bits: of bfloat16 and a packed side where oneDNN
// multiplies it by AVX512-BF16, too, and of float32 and a side kept in pairs, which oneDNN has packed in float32. There
// neither TANDEM_INSTRUCTIONS nor which of the two multiplies changes a row.
const ProductLibrary& machine_products();

// This thread's kernel for the product, made at its first use; null as `make` says. Valid until the thread
// asks for the next one.
ProductKernel* product_kernel(const ProductLibrary& library, const Product& product);

}  // namespace tandem::ops::detail
