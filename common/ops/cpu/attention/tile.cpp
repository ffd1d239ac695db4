#include "common/ops/cpu/attention/tile.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "common/ops/cpu/rows.h"

namespace tandem::ops::detail {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

}  // namespace

QueryTile make_tile(std::int64_t width) {
    thread_local Scratch scratch;
    float* memory = scratch.floats(kQueryTile * (2 * width + kKeyTile));
    return {memory, memory + kQueryTile * width, memory + 2 * kQueryTile * width, {}, {}};
}

void start_tile(QueryTile& tile, std::int64_t rows, std::int64_t width) {
    std::fill_n(tile.acc, rows * width, 0.0f);
    std::fill_n(tile.max, rows, -kInfinity);
    std::fill_n(tile.sum, rows, 0.0f);
}

float finish_tile_row(const QueryTile& tile, std::int64_t row, std::int64_t width, const Tensor& out,
                      std::int64_t offset, std::int64_t head_dim) {
    const float sum = tile.sum[row];
    float* acc = tile.acc + row * width;
    const float factor = sum > 0.0f ? 1.0f / sum : (sum == 0.0f ? 0.0f : sum);  // NaN stays NaN
    for (std::int64_t d = 0; d < head_dim; ++d) acc[d] *= factor;
    if (out.dtype() == DType::float32) {
        std::copy_n(acc, head_dim, out.data<float>() + offset);
    } else {
        narrow(acc, out.data<bfloat16>() + offset, head_dim);
    }
    return sum == 0.0f ? -kInfinity : tile.max[row] + std::log(sum);
}

void merge_tile_row(const QueryTile& tile, std::int64_t row, std::int64_t width, float* out,
                    std::int64_t head_dim, float& lse) {
    const float sum = tile.sum[row];
    if (sum == 0.0f) return;
    const float added_lse = tile.max[row] + std::log(sum);
    const float most = std::max(added_lse, lse);
    const float before = std::exp(lse - most), added = std::exp(added_lse - most);
    const float both = before + added;
    const float* acc = tile.acc + row * width;
    for (std::int64_t d = 0; d < head_dim; ++d) out[d] = (out[d] * before + acc[d] * (added / sum)) / both;
    lse = most + std::log(both);
}

}  // namespace tandem::ops::detail
