// The gradient of a bias: sums over rows. Blocks of rows are summed apart, so that the error does not grow
// with their number; columns are independent.
#include <algorithm>

#include "common/ops/cpu/parallel.h"
#include "common/ops/cpu/rows.h"
#include "common/ops/cpu/simd.h"
#include "common/ops/matmul.h"

namespace tandem::ops::cpu {
namespace {

constexpr std::int64_t kColumns = 512;  // of an item
constexpr std::int64_t kRows = 64;      // of a block

TANDEM_CLONES void add_loop(float* sums, const float* values, std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i) sums[i] += values[i];
}

}  // namespace

void linear_backward_bias(Stream& stream, const Tensor& dy, Tensor dbias) {
    stream.enqueue([=] {
        const std::int64_t rows = dy.dim(0);
        const std::int64_t columns = dy.dim(1);
        detail::parallel_for((columns + kColumns - 1) / kColumns, [&](std::int64_t item) {
            const std::int64_t first = item * kColumns;
            const std::int64_t count = std::min(kColumns, columns - first);
            float wide[kColumns];
            for (std::int64_t begin = 0; begin < rows; begin += kRows) {
                float sums[kColumns] = {};
                for (std::int64_t row = begin; row < std::min(begin + kRows, rows); ++row)
                    add_loop(sums, detail::read_row(dy, row * columns + first, count, wide), count);
                add_loop(dbias.data<float>() + first, sums, count);
            }
        });
    });
}

}  // namespace tandem::ops::cpu
