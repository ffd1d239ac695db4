// A row-major product as a library for column-major matrices has to be asked for it: c = op(a) op(b) is
// c^T = op(b)^T op(a)^T, and a row-major matrix is the transpose of a column-major one in the same memory.
#pragma once

#include <cstdint>

namespace tandem::ops::shared {

struct ColumnMajor {
    std::int64_t rows = 0, columns = 0, leading = 0;  // as it lies in memory
    bool transpose = false;                           // before it enters the product
};

// product [n, m] = first · second, all column-major: first is b, second is a, product is c.
struct GemmLayout {
    ColumnMajor first, second, product;
};

// op(a) [m, k], op(b) [k, n].
inline GemmLayout gemm_layout(std::int64_t m, std::int64_t n, std::int64_t k, bool transpose_a,
                              bool transpose_b) {
    const auto row_major = [](std::int64_t rows, std::int64_t columns, bool transpose) {
        return ColumnMajor{columns, rows, columns, transpose};
    };
    return {.first = transpose_b ? row_major(n, k, true) : row_major(k, n, false),
            .second = transpose_a ? row_major(k, m, true) : row_major(m, k, false),
            .product = row_major(m, n, false)};
}

}  // namespace tandem::ops::shared
