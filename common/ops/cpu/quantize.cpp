// Quantisation on the CPU: leaf loops over a row, cut at each change of scale.
#include "common/ops/quantize.h"

#include "common/error.h"
#include "common/ops/cpu/copy_kernels.h"
#include "common/ops/cpu/simd.h"
#include "common/ops/shared/e4m3.h"

namespace tandem::ops::cpu {
namespace {

using std::size_t;

// Calls body(first element, elements, index) for each piece of a row with one scale: `first` elements, then
// kScaleBlock each. Whole blocks come with a constant length.
template <typename Body>
TANDEM_INLINE void for_pieces(size_t count, size_t first, const Body& body) {
    constexpr auto kBlock = static_cast<size_t>(kScaleBlock);
    size_t part = first < count ? first : count;
    for (size_t at = 0, index = 0; at < count; ++index) {
        part == kBlock ? body(at, kBlock, index) : body(at, part, index);
        at += part;
        part = kBlock < count - at ? kBlock : count - at;
    }
}

// The same with long pieces cut into runs of at most kScaleBlock.
template <typename Body>
TANDEM_INLINE void for_runs(size_t count, size_t first, const Body& body) {
    for_pieces(
        count, first, [&](size_t at, size_t part, size_t index) __attribute__((always_inline)) {
            for_pieces(
                part, static_cast<size_t>(kScaleBlock),
                [&](size_t i, size_t run, size_t)
                    __attribute__((always_inline)) { body(at + i, run, index); });
        });
}

// The lines 4 KiB behind a run: between its loads lies more than the hardware looks ahead.
template <typename T>
TANDEM_INLINE void prefetch_behind(const T* run, size_t count) {
    const auto* ahead = reinterpret_cast<const std::byte*>(run) + 4096;
    for (size_t i = 0; i < count * sizeof(T); i += 64) __builtin_prefetch(ahead + i, 0, 0);
}

template <typename T>
TANDEM_INLINE std::uint32_t largest(const T* bits, size_t count) {
    constexpr T kMagnitude = static_cast<T>(~T{0}) >> 1;
    T most = 0;
    for (size_t i = 0; i < count; ++i) {
        const T magnitude = bits[i] & kMagnitude;
        most = magnitude > most ? magnitude : most;
    }
    return static_cast<std::uint32_t>(most) << (32 - 8 * sizeof(T));
}

// Raises the pieces' amax and returns the largest magnitude of the row, both as bits of a float.
template <typename T>
TANDEM_INLINE std::uint32_t raise_amax(const std::byte* row, size_t count, size_t first, float* amax) {
    const T* bits = reinterpret_cast<const T*>(row);
    std::uint32_t most = 0;
    for_runs(
        count, first, [&](size_t at, size_t part, size_t index) __attribute__((always_inline)) {
            prefetch_behind(bits + at, part);
            const std::uint32_t found = largest(bits + at, part);
            if (found > shared::bits_of(amax[index])) amax[index] = shared::float_of(found);
            most = found > most ? found : most;
        });
    return most;
}
TANDEM_CLONES std::uint32_t amax_of_fp32(const std::byte* row, size_t count, size_t first, float* amax) {
    return raise_amax<std::uint32_t>(row, count, first, amax);
}
TANDEM_CLONES std::uint32_t amax_of_bf16(const std::byte* row, size_t count, size_t first, float* amax) {
    return raise_amax<std::uint16_t>(row, count, first, amax);
}

// What one element becomes in a format, in the low byte; and two bfloat16, the first in the low half of `both`,
// in the low two bytes.
struct E4m3 {
    TANDEM_INLINE std::uint32_t one(float value, float scale) { return shared::e4m3_bits(value / scale); }
    TANDEM_INLINE std::uint32_t two(std::uint32_t both, float scale) {
        const float first = shared::float_of((both << 16) & 0x7fffffffu) / scale;
        const float second = shared::float_of(both & 0x7fff0000u) / scale;
        const std::uint32_t raised = (shared::e4m3_raised(shared::bits_of(first)) & 0xffu) |
                                     shared::e4m3_raised(shared::bits_of(second)) << 8;
        return (raised - shared::kE4m3Raised * 0x101u) | ((both >> 8) & 0x80u) | ((both >> 16) & 0x8000u);
    }
};

struct Int8 {
    TANDEM_INLINE std::uint32_t one(float value, float scale) {
        return static_cast<std::uint32_t>(shared::int8_value(value / scale));
    }
    TANDEM_INLINE std::uint32_t two(std::uint32_t both, float scale) {
        return (one(shared::float_of(both << 16), scale) & 0xffu) |
               one(shared::float_of(both & 0xffff0000u), scale) << 8;
    }
};

template <typename Format>
TANDEM_INLINE void convert(const float* from, size_t count, float scale, std::uint8_t* __restrict to) {
    for (size_t i = 0; i < count; ++i) to[i] = static_cast<std::uint8_t>(Format::one(from[i], scale));
}

// Words of two: in vectors they widen by a shift and a mask, and half as much is narrowed.
template <typename Format>
TANDEM_INLINE void convert(const std::uint16_t* from, size_t count, float scale,
                           std::uint8_t* __restrict to) {
    for (size_t i = 0; i < count / 2; ++i) {
        std::uint32_t both;
        __builtin_memcpy(&both, from + 2 * i, 4);
        const auto codes = static_cast<std::uint16_t>(Format::two(both, scale));
        __builtin_memcpy(to + 2 * i, &codes, 2);
    }
    if (count % 2 == 0) return;
    const float last = shared::float_of_bfloat16(from[count - 1]);
    to[count - 1] = static_cast<std::uint8_t>(Format::one(last, scale));
}

template <typename Format, typename T>
TANDEM_INLINE void convert_row(const std::byte* row, size_t count, size_t first, const float* scales,
                               std::uint8_t* to) {
    const T* from = reinterpret_cast<const T*>(row);
    for_runs(
        count, first, [&](size_t at, size_t part, size_t index) __attribute__((always_inline)) {
            prefetch_behind(from + at, part);
            convert<Format>(from + at, part, scales[index], to + at);
        });
}

using ConvertRow = void(const std::byte* row, size_t count, size_t first, const float* scales,
                        std::uint8_t* to);
TANDEM_CLONES void e4m3_of_fp32(const std::byte* row, size_t count, size_t first, const float* scales,
                                std::uint8_t* to) {
    convert_row<E4m3, float>(row, count, first, scales, to);
}
TANDEM_CLONES void e4m3_of_bf16(const std::byte* row, size_t count, size_t first, const float* scales,
                                std::uint8_t* to) {
    convert_row<E4m3, std::uint16_t>(row, count, first, scales, to);
}
TANDEM_CLONES void int8_of_fp32(const std::byte* row, size_t count, size_t first, const float* scales,
                                std::uint8_t* to) {
    convert_row<Int8, float>(row, count, first, scales, to);
}
TANDEM_CLONES void int8_of_bf16(const std::byte* row, size_t count, size_t first, const float* scales,
                                std::uint8_t* to) {
    convert_row<Int8, std::uint16_t>(row, count, first, scales, to);
}

ConvertRow* converter(Quantization kind, DType dtype) {
    if (kind == Quantization::fp8_block) return dtype == DType::float32 ? e4m3_of_fp32 : e4m3_of_bf16;
    return dtype == DType::float32 ? int8_of_fp32 : int8_of_bf16;
}

// Where row `row` of the box lies in the scales: the index of its first, and how many of its elements have that.
struct RowScales {
    RowScales(const WeightBox& box, const ScaleGrid& grid, std::int64_t row)
        : index(static_cast<size_t>(box.row + row)), first(static_cast<size_t>(box.columns)) {
        if (grid.kind == Quantization::int8_channel) return;
        index = static_cast<size_t>((box.row + row) / kScaleBlock * grid.scale_columns() +
                                    box.column / kScaleBlock);
        first = static_cast<size_t>(kScaleBlock - box.column % kScaleBlock);
    }
    size_t index, first;
};

const std::byte* row_of(const WeightBox& box, std::int64_t row) {
    return box.data + static_cast<size_t>(row) * box.stride;
}

}  // namespace

void accumulate_amax(Stream& stream, const WeightBox& box, const ScaleGrid& grid, std::span<float> amax) {
    stream.synchronize();
    const auto raise = box.dtype == DType::float32 ? amax_of_fp32 : amax_of_bf16;
    for (std::int64_t row = 0; row < box.rows; ++row) {
        const RowScales at(box, grid, row);
        const std::uint32_t most =
            raise(row_of(box, row), static_cast<size_t>(box.columns), at.first, amax.data() + at.index);
        require(most < 0x7f800000u, "accumulate_amax: row {} of the weight holds NaN or infinity",
                box.row + row);
    }
}

Checksum quantize(Stream& stream, const WeightBox& box, const ScaleGrid& grid, std::span<const float> scales,
                  Span to) {
    stream.synchronize();
    const detail::CopyKernels& kernels = detail::copy_kernels();
    detail::HashState hash;
    kernels.hash_begin(hash);
    const auto convert = converter(grid.kind, box.dtype);
    const auto columns = static_cast<size_t>(box.columns);
    size_t written = 0, hashed = 0;
    for (std::int64_t row = 0; row < box.rows; ++row) {
        const RowScales at(box, grid, row);
        convert(row_of(box, row), columns, at.first, scales.data() + at.index,
                reinterpret_cast<std::uint8_t*>(to.data + written));
        written += columns;
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
