// The checks that hold on every device, the way to the backend, and the arithmetic of scales.
#include "common/ops/quantize.h"

#include <algorithm>
#include <limits>

#include "common/ops/dispatch.h"
#include "common/ops/shared/e4m3.h"

namespace tandem::ops {
namespace {

void check_box(const char* op, const WeightBox& box, const ScaleGrid& grid, std::size_t scales) {
    require(box.dtype == DType::float32 || box.dtype == DType::bfloat16,
            "{}: a weight of {}, expected float32 or bfloat16", op, dtype_name(box.dtype));
    require(box.row >= 0 && box.column >= 0 && box.rows >= 0 && box.columns >= 0 &&
                box.row + box.rows <= grid.rows && box.column + box.columns <= grid.columns,
            "{}: {}×{} elements at ({}, {}) of a {}×{} weight", op, box.rows, box.columns, box.row,
            box.column, grid.rows, grid.columns);
    const std::size_t row_bytes = static_cast<std::size_t>(box.columns) * dtype_size(box.dtype);
    require(box.rows <= 1 || (box.stride >= row_bytes && box.stride % dtype_size(box.dtype) == 0),
            "{}: rows of {} bytes lie {} bytes apart", op, row_bytes, box.stride);
    require(static_cast<std::int64_t>(scales) == grid.scale_rows() * grid.scale_columns(),
            "{}: {} scales, expected {}×{}", op, scales, grid.scale_rows(), grid.scale_columns());
}

}  // namespace

std::int64_t ScaleGrid::scale_rows() const {
    return kind == Quantization::fp8_block ? (rows + kScaleBlock - 1) / kScaleBlock : rows;
}

std::int64_t ScaleGrid::scale_columns() const {
    return kind == Quantization::fp8_block ? (columns + kScaleBlock - 1) / kScaleBlock : 1;
}

// For TANDEM_ROUTE_NOW.
static WeightBox aliased(WeightBox box) {
    box.data = host_alias(box.data);
    return box;
}

void accumulate_amax(Stream& stream, const WeightBox& box, const ScaleGrid& grid, std::span<float> amax) {
    check_box("accumulate_amax", box, grid, amax.size());
    TANDEM_ROUTE_NOW(accumulate_amax, box, grid, amax);
}

void accumulate_amax(const WeightBox& box, const ScaleGrid& grid, std::span<float> amax) {
    Stream here = Stream::make_inline();
    accumulate_amax(here, box, grid, amax);
}

void amax_to_scale(const ScaleGrid& grid, std::span<float> values) {
    require(static_cast<std::int64_t>(values.size()) == grid.scale_rows() * grid.scale_columns(),
            "amax_to_scale: {} values, expected {}×{}", values.size(), grid.scale_rows(),
            grid.scale_columns());
    const float most = grid.kind == Quantization::fp8_block ? 448.0f : 127.0f;
    for (float& value : values) {
        value = value == 0.0f ? 1.0f : std::max(value / most, std::numeric_limits<float>::min());
    }
}

Checksum quantize(Stream& stream, const WeightBox& box, const ScaleGrid& grid, std::span<const float> scales,
                  Span to) {
    check_box("quantize", box, grid, scales.size());
    require(to.bytes == static_cast<std::size_t>(box.rows * box.columns),
            "quantize: {} bytes for {}×{} elements", to.bytes, box.rows, box.columns);
    return TANDEM_ROUTE_NOW(quantize, box, grid, scales, to);
}

Checksum quantize(const WeightBox& box, const ScaleGrid& grid, std::span<const float> scales, Span to) {
    Stream here = Stream::make_inline();
    return quantize(here, box, grid, scales, to);
}

std::uint8_t float_to_e4m3(float value) {
    return static_cast<std::uint8_t>(shared::e4m3_bits(value));
}

}  // namespace tandem::ops
