#include "common/ops/cpu/half.h"

#include <algorithm>

#include "common/ops/cpu/simd.h"
#include "common/ops/half.h"
#include "common/ops/shared/half.h"

namespace tandem::ops::detail {

TANDEM_CLONES void widen_half(const std::uint16_t* from, float* to, std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i) to[i] = shared::float_of_half(from[i]);
}

TANDEM_CLONES void narrow_half(const float* from, std::uint16_t* to, std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i) to[i] = shared::half_bits(from[i]);
}

namespace {

TANDEM_CLONES std::uint32_t any_beyond(const float* values, std::int64_t count) {
    std::uint32_t any = 0;
    for (std::int64_t i = 0; i < count; ++i) any |= shared::beyond_half(values[i]) ? 1u : 0u;
    return any;
}

TANDEM_CLONES std::uint32_t any_beyond(const std::uint16_t* values, std::int64_t count) {
    std::uint32_t any = 0;
    for (std::int64_t i = 0; i < count; ++i)
        any |= shared::beyond_half(shared::float_of_bfloat16(values[i])) ? 1u : 0u;
    return any;
}

float as_float(float value) {
    return value;
}
float as_float(std::uint16_t bits) {
    return shared::float_of_bfloat16(bits);
}

template <typename T>
std::int64_t first_beyond(const T* values, std::int64_t count) {
    constexpr std::int64_t kBlock = 4096;
    for (std::int64_t at = 0; at < count; at += kBlock) {
        const std::int64_t end = std::min(count, at + kBlock);
        if (any_beyond(values + at, end - at) == 0) continue;
        for (std::int64_t i = at; i < end; ++i) {
            if (shared::beyond_half(as_float(values[i]))) return i;
        }
    }
    return -1;
}

}  // namespace
}  // namespace tandem::ops::detail

namespace tandem::ops {

std::int64_t first_beyond_float16(const Tensor& values) {
    if (values.dtype() == DType::float32)
        return detail::first_beyond(reinterpret_cast<const float*>(values.raw()), values.numel());
    if (values.dtype() == DType::bfloat16)
        return detail::first_beyond(reinterpret_cast<const std::uint16_t*>(values.raw()), values.numel());
    return -1;
}

}  // namespace tandem::ops
