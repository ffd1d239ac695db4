// Element types. bfloat16 is the upper half of a float; conversion from float rounds to nearest even.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace tandem {

struct bfloat16 {
    std::uint16_t bits = 0;

    bfloat16() = default;
    constexpr explicit bfloat16(float value) {
        const auto u = std::bit_cast<std::uint32_t>(value);
        if ((u & 0x7fffffffu) > 0x7f800000u) {
            bits = static_cast<std::uint16_t>((u >> 16) | 0x40u);  // quiet NaN
        } else {
            bits = static_cast<std::uint16_t>((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
        }
    }
    constexpr explicit operator float() const {
        return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
    }
    friend constexpr bool operator==(bfloat16 a, bfloat16 b) { return a.bits == b.bits; }
};

// IEEE binary16, which checkpoints come in; nothing computes in it.
struct float16 {
    std::uint16_t bits = 0;

    float16() = default;
    constexpr explicit float16(std::uint16_t raw) : bits(raw) {}
    // Exact: the exponent is moved by a multiplication, which also normalises subnormals.
    constexpr explicit operator float() const {
        const std::uint32_t magnitude = bits & 0x7fffu;
        const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000u) << 16;
        const float moved = std::bit_cast<float>(magnitude << 13) * 0x1p112f;
        const std::uint32_t special = magnitude >= 0x7c00u ? 0x7f800000u : 0u;  // infinities and NaN
        return std::bit_cast<float>(std::bit_cast<std::uint32_t>(moved) | special | sign);
    }
    friend constexpr bool operator==(float16 a, float16 b) { return a.bits == b.bits; }
};

// The 8-bit ones only carry quantised weights (common/ops/quantize.h), float16 only what a checkpoint holds:
// no tensor computes in them.
enum class DType : std::uint8_t { float32, bfloat16, int32, int64, uint8, float8_e4m3fn, int8, float16 };

std::size_t dtype_size(DType dtype);
std::string_view dtype_name(DType dtype);  // torch's words: "float32", "bfloat16", …
// Also "fp32", "bf16", "fp8", "fp16". Throws BadInput listing the names.
DType dtype_from_name(std::string_view name);
std::string_view safetensors_dtype_name(DType dtype);  // "F32", "BF16", "I64", "F8_E4M3", …

template <typename T>
struct dtype_of;
template <>
struct dtype_of<float> {
    static constexpr DType value = DType::float32;
};
template <>
struct dtype_of<bfloat16> {
    static constexpr DType value = DType::bfloat16;
};
template <>
struct dtype_of<float16> {
    static constexpr DType value = DType::float16;
};
template <>
struct dtype_of<std::int32_t> {
    static constexpr DType value = DType::int32;
};
template <>
struct dtype_of<std::int64_t> {
    static constexpr DType value = DType::int64;
};
template <>
struct dtype_of<std::uint8_t> {
    static constexpr DType value = DType::uint8;
};

}  // namespace tandem
