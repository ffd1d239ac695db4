// How a matmul's right-hand side is cut into chunks of columns, with their row blocks. Depends on the library
// and (n, k, dtype, layout) only.
//
// Where the library has no kernels for bfloat16, as oneDNN has none on machines without its instructions, a plan widens:
// it multiplies in float32, by chunks that are packed in float32 for the multiplication. What is kept of a weight (a
// PackedWeight) stays bfloat16 where the library multiplies few rows by it so (WeightLayout::pairs), and is float32 elsewhere.
#pragma once

#include <memory>

#include "common/ops/cpu/row_blocks.h"

namespace tandem::ops::detail {

struct ProductPlan {
    std::int64_t n, k;
    DType dtype;             // that the kernels multiply
    DType stored;            // of b
    WeightLayout layout;     // of b as it is stored
    std::int64_t width = 0;  // columns of every chunk but the last
    std::int64_t chunks = 0;
    std::size_t packed_bytes = 0;  // of a chunk, and from one to the next; 0: chunks are read where they lie
    bool packs = false;            // in the library's layout; else in b's, for widening alone
    std::size_t kept_bytes = 0;    // of a chunk of a PackedWeight, and from one to the next
    // Of a chunk that is kept in pairs, columns of a block; 0: it is kept as it is packed.
    std::int64_t whole_pair_columns = 0, last_pair_columns = 0;
    std::unique_ptr<RowBlocks> whole = nullptr, last = nullptr;  // null `last`: it is as wide as the others

    std::int64_t begin(std::int64_t chunk) const { return chunk * width; }
    std::int64_t columns(std::int64_t chunk) const { return chunk + 1 < chunks ? width : n - begin(chunk); }
    RowBlocks& blocks(std::int64_t chunk) const { return last && chunk + 1 == chunks ? *last : *whole; }
    bool widens() const { return stored != dtype; }
    bool supported() const { return whole->base() > 0 && (!last || last->base() > 0); }
    std::int64_t pair_columns(std::int64_t chunk) const {
        return last && chunk + 1 == chunks ? last_pair_columns : whole_pair_columns;
    }
    // Where the chunk begins in b as it is stored.
    std::size_t offset(std::int64_t chunk) const;
    bool keeps_pairs() const { return whole_pair_columns > 0; }
    // For a plan with packed_bytes.
    void pack(const ProductLibrary& library, std::int64_t chunk, const std::byte* b, std::byte* to) const;
    // The chunk of a PackedWeight, and from it what pack makes of b.
    void keep(const ProductLibrary& library, std::int64_t chunk, const std::byte* b, std::byte* to) const;
    void pack_kept(std::int64_t chunk, const std::byte* kept, std::byte* to) const;
    // This thread's kernel for up to kFewRows rows of float32 by a chunk kept in pairs; it has the bits of `blocks`.
    static constexpr std::int64_t kFewRows = RowBlocks::kSizes.front();
    ProductKernel* pair_kernel(const ProductLibrary& library, std::int64_t columns) const;
};

// Made at the first call, for the life of the process. Thread-safe.
const ProductPlan& product_plan(const ProductLibrary& library, std::int64_t n, std::int64_t k, DType dtype,
                                WeightLayout layout);

}  // namespace tandem::ops::detail
