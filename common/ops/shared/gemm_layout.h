// A row-major product as a library for column-major matrices has to be asked for it: c = op(a) op(b) is
// c^T = op(b)^T op(a)^T, and a row-major matrix is the transpose of a column-major one in the same memory.
// And the number of rows for which its algorithm is chosen.
#pragma once

#include <algorithm>
#include <bit>
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

// The class of m: products of one class share an algorithm, so that a row's values do not depend on how many
// others are in the call. Decode is one class, for a sequence's tokens must not depend on who else is served.
// Above it the classes are powers of two: an algorithm for 4096 rows has tiles so large that 512 rows by 1024
// columns are 16 blocks for 132 multiprocessors. Nothing on a GPU rests on bits across classes: already
// decode and prefill, and with them engine and trainer, agree there to rounding.
inline constexpr std::int64_t kDecodeRows = 128;

inline std::int64_t rows_class(std::int64_t m) {
    constexpr std::int64_t kMany = 4096;  // more fill any GPU with the largest tiles
    const auto rows = static_cast<std::uint64_t>(std::clamp(m, kDecodeRows, kMany));
    return static_cast<std::int64_t>(std::bit_ceil(rows));
}

}  // namespace tandem::ops::shared
