#include "sync/codec/naive.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "sync/codec/scales.h"

namespace tandem::sync {
namespace {

float element(const Tensor& full, std::int64_t index) {
    if (full.dtype() == DType::float32) return full.data<float>()[index];
    return static_cast<float>(full.data<bfloat16>()[index]);
}

std::uint8_t rounded(float scaled, DType to) {
    if (to == DType::float8_e4m3fn) return ops::float_to_e4m3(scaled);
    return static_cast<std::uint8_t>(static_cast<int>(std::nearbyint(std::clamp(scaled, -127.0f, 127.0f))));
}

}  // namespace

NaiveQuantized quantize_naively(const Tensor& full, DType to) {
    const ops::ScaleGrid grid = scale_grid(to, full.shape());
    const bool by_row = to == DType::int8;
    NaiveQuantized result{
        Tensor::empty(full.shape(), to, "sync verify"),
        Tensor::zeros({grid.scale_rows(), grid.scale_columns()}, DType::float32, "sync verify")};
    const auto scale_of = [&](std::int64_t row, std::int64_t column) -> float& {
        float* scales = result.scales.data<float>();
        if (by_row) return scales[row];
        return scales[row / ops::kScaleBlock * grid.scale_columns() + column / ops::kScaleBlock];
    };
    for (std::int64_t row = 0; row < grid.rows; ++row) {
        for (std::int64_t column = 0; column < grid.columns; ++column) {
            float& amax = scale_of(row, column);
            amax = std::max(amax, std::abs(element(full, row * grid.columns + column)));
        }
    }
    for (float& scale : result.scales.values<float>()) {
        const float smallest = std::numeric_limits<float>::min();
        scale = scale == 0.0f ? 1.0f : std::max(scale / (by_row ? 127.0f : 448.0f), smallest);
    }
    for (std::int64_t row = 0; row < grid.rows; ++row) {
        for (std::int64_t column = 0; column < grid.columns; ++column) {
            const std::int64_t index = row * grid.columns + column;
            result.values.raw()[index] =
                static_cast<std::byte>(rounded(element(full, index) / scale_of(row, column), to));
        }
    }
    return result;
}

}  // namespace tandem::sync
