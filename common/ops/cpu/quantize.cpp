// Quantisation on the CPU: rows are cut at each change of scale; each piece is one loop.
#include "common/ops/quantize.h"

#include <algorithm>
#include <array>
#include <bit>

#include "common/error.h"
#include "common/ops/cpu/copy_kernels.h"
#include "common/ops/cpu/simd.h"
#include "common/ops/shared/e4m3.h"

namespace tandem::ops::cpu {
namespace {

using std::size_t;

TANDEM_CLONES std::uint32_t amax_fp32(const std::uint32_t* bits, size_t count, std::uint32_t amax) {
    for (size_t i = 0; i < count; ++i) {
        const std::uint32_t magnitude = bits[i] & 0x7fffffffu;
        amax = magnitude > amax ? magnitude : amax;
    }
    return amax;
}

TANDEM_CLONES std::uint32_t amax_bf16(const std::uint16_t* bits, size_t count, std::uint32_t amax) {
    auto most = static_cast<std::uint16_t>(amax >> 16);
    for (size_t i = 0; i < count; ++i) {
        const auto magnitude = static_cast<std::uint16_t>(bits[i] & 0x7fffu);
        most = magnitude > most ? magnitude : most;
    }
    const std::uint32_t found = static_cast<std::uint32_t>(most) << 16;
    return found > amax ? found : amax;
}

TANDEM_CLONES void to_e4m3(const float* from, size_t count, float scale, std::uint8_t* to) {
    for (size_t i = 0; i < count; ++i) to[i] = static_cast<std::uint8_t>(shared::e4m3_bits(from[i] / scale));
}

TANDEM_CLONES void to_int8(const float* from, size_t count, float scale, std::uint8_t* to) {
    for (size_t i = 0; i < count; ++i) to[i] = static_cast<std::uint8_t>(shared::int8_value(from[i] / scale));
}

// Calls body(first element, elements, index of the scale) for each piece of row `row` of the box.
template <typename Body>
void for_pieces(const WeightBox& box, const ScaleGrid& grid, std::int64_t row, const Body& body) {
    const std::byte* data = box.data + static_cast<size_t>(row) * box.stride;
    if (grid.kind == Quantization::int8_channel) {
        return body(data, static_cast<size_t>(box.columns), static_cast<size_t>(box.row + row));
    }
    const std::int64_t first = (box.row + row) / kScaleBlock * grid.scale_columns();
    for (std::int64_t at = 0; at < box.columns;) {
        const std::int64_t column = box.column + at;
        const std::int64_t count = std::min(box.columns - at, kScaleBlock - column % kScaleBlock);
        body(data + static_cast<size_t>(at) * dtype_size(box.dtype), static_cast<size_t>(count),
             static_cast<size_t>(first + column / kScaleBlock));
        at += count;
    }
}

// One piece in one scale; bfloat16 is widened in blocks first.
void convert(const std::byte* from, DType dtype, size_t count, Quantization kind, float scale,
             std::uint8_t* to) {
    const auto loop = kind == Quantization::fp8_block ? to_e4m3 : to_int8;
    if (dtype == DType::float32) return loop(reinterpret_cast<const float*>(from), count, scale, to);
    std::array<float, 256> wide;
    for (size_t at = 0; at < count; at += wide.size()) {
        const size_t part = std::min(wide.size(), count - at);
        detail::copy_kernels().widen(from + 2 * at, reinterpret_cast<std::byte*>(wide.data()),
                                     static_cast<std::int64_t>(part));
        loop(wide.data(), part, scale, to + at);
    }
}

}  // namespace

void accumulate_amax(Stream& stream, const WeightBox& box, const ScaleGrid& grid, std::span<float> amax) {
    stream.synchronize();
    for (std::int64_t row = 0; row < box.rows; ++row) {
        for_pieces(box, grid, row, [&](const std::byte* from, size_t count, size_t scale) {
            auto most = std::bit_cast<std::uint32_t>(amax[scale]);
            most = box.dtype == DType::float32
                       ? amax_fp32(reinterpret_cast<const std::uint32_t*>(from), count, most)
                       : amax_bf16(reinterpret_cast<const std::uint16_t*>(from), count, most);
            require(most < 0x7f800000u, "accumulate_amax: row {} of the weight holds NaN or infinity",
                    box.row + row);
            amax[scale] = std::bit_cast<float>(most);
        });
    }
}

Checksum quantize(Stream& stream, const WeightBox& box, const ScaleGrid& grid, std::span<const float> scales,
                  Span to) {
    stream.synchronize();
    const detail::CopyKernels& kernels = detail::copy_kernels();
    detail::HashState hash;
    kernels.hash_begin(hash);
    size_t written = 0, hashed = 0;
    for (std::int64_t row = 0; row < box.rows; ++row) {
        for_pieces(box, grid, row, [&](const std::byte* from, size_t count, size_t scale) {
            convert(from, box.dtype, count, grid.kind, scales[scale],
                    reinterpret_cast<std::uint8_t*>(to.data + written));
            written += count;
        });
        const size_t lines = (written - hashed) / 64 * 64;
        if (lines < 1024) continue;  // short rows are hashed several at a time
        kernels.hash_lines(hash, {to.data + hashed, 0, nullptr, 0, 1, lines});
        hashed += lines;
    }
    kernels.hash_update(hash, to.data + hashed, written - hashed);
    Checksum result;
    kernels.hash_end(hash, result.low, result.high);
    return result;
}

}  // namespace tandem::ops::cpu
