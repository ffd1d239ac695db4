// Casts, sums and fills on the CPU, and the row conversions that the other ops share.
#include "common/ops/elementwise.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "common/ops/cpu/half.h"
#include "common/ops/cpu/parallel.h"
#include "common/ops/cpu/rows.h"
#include "common/ops/cpu/simd.h"

namespace tandem::ops::detail {

TANDEM_CLONES void widen_loop(const std::uint16_t* from, std::uint32_t* to, std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i) to[i] = static_cast<std::uint32_t>(from[i]) << 16;
}

// The same rounding as the class bfloat16, branch-free.
TANDEM_CLONES void narrow_loop(const std::uint32_t* from, std::uint16_t* to, std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i) {
        const std::uint32_t u = from[i];
        const std::uint32_t rounded = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
        const std::uint32_t quiet = (u >> 16) | 0x40u;
        to[i] = static_cast<std::uint16_t>((u & 0x7fffffffu) > 0x7f800000u ? quiet : rounded);
    }
}

TANDEM_CLONES void add_into(float* sums, const float* more, std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i) sums[i] += more[i];
}

void widen(const bfloat16* from, float* to, std::int64_t count) {
    widen_loop(reinterpret_cast<const std::uint16_t*>(from), reinterpret_cast<std::uint32_t*>(to), count);
}

void narrow(const float* from, bfloat16* to, std::int64_t count) {
    narrow_loop(reinterpret_cast<const std::uint32_t*>(from), reinterpret_cast<std::uint16_t*>(to), count);
}

}  // namespace tandem::ops::detail

namespace tandem::ops::cpu {
namespace {

constexpr std::int64_t kElementBlock = 4096;
constexpr std::int64_t kAddBlock = 2048;

void cast_half(const Tensor& from, const Tensor& to) {
    const auto* half = reinterpret_cast<const std::uint16_t*>(from.raw());
    std::array<float, kElementBlock> scratch;
    for (std::int64_t i = 0; i < from.numel(); i += kElementBlock) {
        const std::int64_t count = std::min(kElementBlock, from.numel() - i);
        float* row = detail::begin_row(to, i, scratch.data());
        detail::widen_half(half + i, row, count);
        detail::finish_row(to, i, count, row);
    }
}

void cast_to_half(const Tensor& from, const Tensor& to) {
    auto* half = reinterpret_cast<std::uint16_t*>(to.raw());
    std::array<float, kElementBlock> scratch;
    for (std::int64_t i = 0; i < from.numel(); i += kElementBlock) {
        const std::int64_t count = std::min(kElementBlock, from.numel() - i);
        detail::narrow_half(detail::read_row(from, i, count, scratch.data()), half + i, count);
    }
}

TANDEM_CLONES void scale_loop(float* a, float factor, std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i) a[i] *= factor;
}

}  // namespace

void cast(Stream& stream, const Tensor& from, Tensor to) {
    stream.enqueue([from, to] {
        if (from.dtype() == to.dtype()) {
            if (from.raw() != to.raw()) std::memmove(to.raw(), from.raw(), from.bytes());
        } else if (to.dtype() == DType::float16) {
            cast_to_half(from, to);
        } else if (from.dtype() == DType::bfloat16) {
            detail::widen(from.data<bfloat16>(), to.data<float>(), from.numel());
        } else if (from.dtype() == DType::float16) {
            cast_half(from, to);
        } else {
            detail::narrow(from.data<float>(), to.data<bfloat16>(), from.numel());
        }
    });
}

void add(Stream& stream, Tensor a, const Tensor& b) {
    stream.enqueue([a, b] {
        detail::parallel_blocks(a.numel(), kAddBlock, [&](std::int64_t i, std::int64_t count) {
            std::array<float, kAddBlock> scratch_a;
            std::array<float, kAddBlock> scratch_b;
            float* sum = detail::begin_row(a, i, scratch_a.data());
            detail::read_row(a, i, count, scratch_a.data());
            detail::add_into(sum, detail::read_row(b, i, count, scratch_b.data()), count);
            detail::finish_row(a, i, count, sum);
        });
    });
}

void scale(Stream& stream, Tensor a, float factor) {
    stream.enqueue([a, factor] { scale_loop(a.data<float>(), factor, a.numel()); });
}

void fill_zero(Stream& stream, Tensor a) {
    stream.enqueue([a] {
        if (a.bytes() > 0) std::memset(a.raw(), 0, a.bytes());
    });
}

}  // namespace tandem::ops::cpu
