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
    explicit bfloat16(float value) {
        const auto u = std::bit_cast<std::uint32_t>(value);
        if ((u & 0x7fffffffu) > 0x7f800000u) {
            bits = static_cast<std::uint16_t>((u >> 16) | 0x40u);  // quiet NaN
        } else {
            bits = static_cast<std::uint16_t>((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
        }
    }
    explicit operator float() const { return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16); }
    friend bool operator==(bfloat16 a, bfloat16 b) { return a.bits == b.bits; }
};

// The last two only carry quantised weights (common/ops/quantize.h): no tensor computes in them.
enum class DType : std::uint8_t { float32, bfloat16, int32, int64, uint8, float8_e4m3fn, int8 };

std::size_t dtype_size(DType dtype);
std::string_view dtype_name(DType dtype);  // torch's words: "float32", "bfloat16", …
DType dtype_from_name(
    std::string_view name);  // also "fp32", "bf16", "fp8"; throws InvalidArgument listing the names
std::string_view safetensors_dtype_name(DType dtype);  // "F32", "BF16", "I32", "I64", "U8", "F8_E4M3", "I8"

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
