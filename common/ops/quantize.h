// Weights in eight bits, quantised while they are copied.
//
//   kind          an element q                    scale, float32  of each
//   fp8 block     float8_e4m3fn, e4m3(w / scale)  amax / 448      128×128 block (DeepSeek's weight_scale_inv)
//   int8 channel  int8, round(w / scale)          amax / 127      row
//
// An engine reads w' = q · scale. |w - w'| is at most scale times half an ulp of the format there, and what
// fp32 loses in w / scale and q · scale (2^-22 of |w|): for fp8 |w| / 16 or, where that is larger,
// scale / 1024, and nowhere more than 16 · scale = amax / 28; for int8 scale / 2 = amax / 254.
// A block or row of zeros has scale 1; no other scale is below 2^-126, the smallest normal number. Ranks that
// hold parts of a block agree on amax first (a max over ranks): the result does not depend on the sharding.
#pragma once

#include <cstdint>
#include <span>

#include "common/device/device.h"
#include "common/device/stream.h"
#include "common/ops/backends.h"
#include "common/ops/batched_copy.h"

namespace tandem::ops {

inline constexpr std::int64_t kScaleBlock = 128;

enum class Quantization : std::uint8_t { fp8_block, int8_channel };

// Shape of the scales of a [rows, columns] weight: [ceil(rows/128), ceil(columns/128)] or [rows, 1].
struct ScaleGrid {
    Quantization kind = Quantization::fp8_block;
    std::int64_t rows = 0;
    std::int64_t columns = 0;
    std::int64_t scale_rows() const;
    std::int64_t scale_columns() const;
};

// A box of a weight: `rows` rows of `columns` elements, `stride` bytes apart, float32 or bfloat16, whose
// first element is (row, column) of the whole weight.
struct WeightBox {
    const std::byte* data = nullptr;
    std::size_t stride = 0;
    DType dtype = DType::float32;
    std::int64_t row = 0;
    std::int64_t column = 0;
    std::int64_t rows = 0;
    std::int64_t columns = 0;
};

// amax[scale_rows × scale_columns] = max(amax, |w|) over the box. Throws InvalidArgument for NaN and
// infinity.
void accumulate_amax(const WeightBox& box, const ScaleGrid& grid, std::span<float> amax);
// In place: amax → scale.
void amax_to_scale(const ScaleGrid& grid, std::span<float> values);
// Writes rows × columns bytes, packed, to `to`; returns their checksum. accumulate_amax has seen the box:
// nothing is checked for NaN again, and what one that came since becomes is not defined.
Checksum quantize(const WeightBox& box, const ScaleGrid& grid, std::span<const float> scales, Span to);
// The same for a box on the stream's device, after the stream's work so far; amax and scales lie on the host.
void accumulate_amax(Stream& stream, const WeightBox& box, const ScaleGrid& grid, std::span<float> amax);
Checksum quantize(Stream& stream, const WeightBox& box, const ScaleGrid& grid, std::span<const float> scales,
                  Span to);
// e4m3fn: round to nearest even, saturating at ±448, NaN stays NaN. There are no infinities.
std::uint8_t float_to_e4m3(float value);

TANDEM_BACKENDS(accumulate_amax)
TANDEM_BACKENDS(quantize)

}  // namespace tandem::ops
