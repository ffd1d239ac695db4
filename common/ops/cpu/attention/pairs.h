// Sixteen lanes of pairs of bfloat16 and what attention does with them: the instructions of AVX512-BF16, and in
// sources that are compiled without it the same values from plain C++, so that any machine can test the kernels.
//
// A pair is one 32-bit word; its first number is the low half, which comes first in memory.
#pragma once

#if defined(__AVX512F__)
#include <immintrin.h>
#endif

#include <cstdint>

namespace tandem::ops::detail {

#define TANDEM_LANES static inline __attribute__((always_inline))

using Floats = float __attribute__((vector_size(64)));
using FloatsUnaligned __attribute__((vector_size(64), aligned(4), may_alias)) = float;
using Words = std::uint32_t __attribute__((vector_size(64)));
using WordsUnaligned __attribute__((vector_size(64), aligned(2), may_alias)) = std::uint32_t;
using Longs = std::uint64_t __attribute__((vector_size(64)));
using WordUnaligned __attribute__((aligned(2), may_alias)) = std::uint32_t;
using LaneMask = std::uint16_t;  // bit i: lane i
inline constexpr int kFloats = 16;

TANDEM_LANES Floats load_floats(const float* from) {
    return *reinterpret_cast<const FloatsUnaligned*>(from);
}
TANDEM_LANES void store_floats(float* to, const Floats& value) {
    *reinterpret_cast<FloatsUnaligned*>(to) = value;
}
TANDEM_LANES Words load_pairs(const void* from) {
    return *reinterpret_cast<const WordsUnaligned*>(from);
}
TANDEM_LANES void store_pairs(void* to, const Words& value) {
    *reinterpret_cast<WordsUnaligned*>(to) = value;
}
TANDEM_LANES Floats all_lanes(float x) {
    return Floats{} + x;
}
// The number there, as it is: a sum with 0, above, takes an instruction more, and the sign of -0.
TANDEM_LANES Floats all_lanes_float(const float* from) {
    const float x = *from;
    return Floats{x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x};
}
TANDEM_LANES Words all_lanes_pair(const void* from) {
    return Words{} + *static_cast<const WordUnaligned*>(from);
}
// Lanes [0, count), count clamped to 0 .. 16.
TANDEM_LANES LaneMask first_lanes(std::int64_t count) {
    return static_cast<LaneMask>(count <= 0 ? 0 : (count >= kFloats ? 0xffff : (1 << count) - 1));
}

// a * b + c, rounded once.
#if defined(__AVX512F__)
TANDEM_LANES Floats fused_floats(const Floats& a, const Floats& b, const Floats& c) {
    return reinterpret_cast<Floats>(_mm512_fmadd_ps(reinterpret_cast<__m512>(a), reinterpret_cast<__m512>(b),
                                                    reinterpret_cast<__m512>(c)));
}
#else
TANDEM_LANES Floats fused_floats(const Floats& a, const Floats& b, const Floats& c) {
    Floats result;
    for (int i = 0; i < kFloats; ++i) result[i] = __builtin_fmaf(a[i], b[i], c[i]);
    return result;
}
#endif

#if defined(__AVX512BF16__)

// sum + a.second * b.second, then + a.first * b.first, each rounded once to nearest even; what is subnormal
// counts as 0, sums too, whatever the thread's mode.
TANDEM_LANES Floats dot_pairs(const Words& a, const Words& b, const Floats& sum) {
    return reinterpret_cast<Floats>(
        _mm512_dpbf16_ps(reinterpret_cast<__m512>(sum), (__m512bh)a, (__m512bh)b));
}
// Rounded to nearest even; subnormal numbers become 0.
TANDEM_LANES Words narrow_pairs(const Floats& first, const Floats& second) {
    const __m512i apart =
        (__m512i)_mm512_cvtne2ps_pbh(reinterpret_cast<__m512>(second), reinterpret_cast<__m512>(first));
    const __m512i in_turn = _mm512_set_epi32(
        0x001f000f, 0x001e000e, 0x001d000d, 0x001c000c, 0x001b000b, 0x001a000a, 0x00190009, 0x00180008,
        0x00170007, 0x00160006, 0x00150005, 0x00140004, 0x00130003, 0x00120002, 0x00110001, 0x00100000);
    return reinterpret_cast<Words>(_mm512_permutexvar_epi16(in_turn, apart));
}
// The same numbers as they lie: first's 16, then second's.
TANDEM_LANES Words narrow_in_order(const Floats& first, const Floats& second) {
    return (Words)_mm512_cvtne2ps_pbh(reinterpret_cast<__m512>(second), reinterpret_cast<__m512>(first));
}
// a > b ? a : b
TANDEM_LANES Floats larger(const Floats& a, const Floats& b) {
    return reinterpret_cast<Floats>(_mm512_max_ps(reinterpret_cast<__m512>(a), reinterpret_cast<__m512>(b)));
}
TANDEM_LANES LaneMask where_greater(const Floats& a, const Floats& b) {
    return _mm512_cmp_ps_mask(reinterpret_cast<__m512>(a), reinterpret_cast<__m512>(b), _CMP_GT_OQ);
}
TANDEM_LANES Floats select_lanes(LaneMask lanes, const Floats& chosen, const Floats& other) {
    return reinterpret_cast<Floats>(
        _mm512_mask_blend_ps(lanes, reinterpret_cast<__m512>(other), reinterpret_cast<__m512>(chosen)));
}
TANDEM_LANES Words select_lanes(LaneMask lanes, const Words& chosen, const Words& other) {
    return reinterpret_cast<Words>(
        _mm512_mask_blend_epi32(lanes, reinterpret_cast<__m512i>(other), reinterpret_cast<__m512i>(chosen)));
}
TANDEM_LANES Words load_pairs(const void* from, LaneMask lanes) {  // 0 in the others, which are not read
    return reinterpret_cast<Words>(_mm512_maskz_loadu_epi32(lanes, from));
}
// Four pairs of each row, one row's after the other's.
TANDEM_LANES Words load_quarters(const void* a, const void* b, const void* c, const void* d) {
    const auto quarter = [](const void* from) { return _mm_loadu_si128(static_cast<const __m128i*>(from)); };
    __m512i result = _mm512_castsi128_si512(quarter(a));
    result = _mm512_inserti32x4(result, quarter(b), 1);
    result = _mm512_inserti32x4(result, quarter(c), 2);
    return reinterpret_cast<Words>(_mm512_inserti32x4(result, quarter(d), 3));
}
TANDEM_LANES Floats round_floats(const Floats& x) {  // to integers, to nearest even
    return reinterpret_cast<Floats>(_mm512_roundscale_ps(reinterpret_cast<__m512>(x), 0));
}
// x times 2^n, n whole
TANDEM_LANES Floats scale_floats(const Floats& x, const Floats& n) {
    return reinterpret_cast<Floats>(
        _mm512_scalef_ps(reinterpret_cast<__m512>(x), reinterpret_cast<__m512>(n)));
}

#else

TANDEM_LANES bool is_subnormal(float x) {
    return __builtin_fabsf(x) < 0x1p-126f;
}
TANDEM_LANES float without_subnormals(float x) {
    return is_subnormal(x) ? __builtin_copysignf(0.0f, x) : x;
}
TANDEM_LANES float bfloat16_number(std::uint32_t half) {
    return without_subnormals(__builtin_bit_cast(float, half << 16));
}
// sum + a * b rounded once, 0 where that is subnormal after it was rounded to 24 bits. The product of bfloat16
// numbers is a double, and so is what the rounding of its sum with a float leaves.
TANDEM_LANES float add_product(float sum, float a, float b) {
    const float result = __builtin_fmaf(a, b, sum);
    if (__builtin_fabsf(result) != 0x1p-126f) return without_subnormals(result);
    const double product = double{a} * double{b}, total = product + double{sum};
    const double added = total - product;
    const double left = (product - (total - added)) + (double{sum} - added);
    const double sign = total < 0 ? -1 : 1;
    const double border = 0x1p-126 - 0x1p-151;  // the tie goes up
    const bool small = sign * total < border || (sign * total == border && sign * left < 0);
    return small ? __builtin_copysignf(0.0f, result) : result;
}
TANDEM_LANES Floats dot_pairs(const Words& a, const Words& b, const Floats& sum) {
    Floats result;
    for (int i = 0; i < kFloats; ++i) {
        const float second =
            add_product(without_subnormals(sum[i]), bfloat16_number(a[i] >> 16), bfloat16_number(b[i] >> 16));
        result[i] = add_product(second, bfloat16_number(a[i] & 0xffff), bfloat16_number(b[i] & 0xffff));
    }
    return result;
}
TANDEM_LANES std::uint32_t bfloat16_half(float x) {
    const auto bits = __builtin_bit_cast(std::uint32_t, without_subnormals(x));
    if (x != x) return bits >> 16 | 0x40;
    return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}
TANDEM_LANES Words narrow_pairs(const Floats& first, const Floats& second) {
    Words result;
    for (int i = 0; i < kFloats; ++i) result[i] = bfloat16_half(first[i]) | bfloat16_half(second[i]) << 16;
    return result;
}
TANDEM_LANES Words narrow_in_order(const Floats& first, const Floats& second) {
    Words result;
    for (int i = 0; i < kFloats; ++i) {
        const Floats& from = i < kFloats / 2 ? first : second;
        const int at = 2 * i % kFloats;
        result[i] = bfloat16_half(from[at]) | bfloat16_half(from[at + 1]) << 16;
    }
    return result;
}
TANDEM_LANES Floats larger(const Floats& a, const Floats& b) {
    return a > b ? a : b;
}
TANDEM_LANES LaneMask where_greater(const Floats& a, const Floats& b) {
    LaneMask result = 0;
    for (int i = 0; i < kFloats; ++i) result = static_cast<LaneMask>(result | (a[i] > b[i]) << i);
    return result;
}
TANDEM_LANES Floats select_lanes(LaneMask lanes, const Floats& chosen, const Floats& other) {
    Floats result;
    for (int i = 0; i < kFloats; ++i) result[i] = (lanes >> i & 1) != 0 ? chosen[i] : other[i];
    return result;
}
TANDEM_LANES Words select_lanes(LaneMask lanes, const Words& chosen, const Words& other) {
    Words result;
    for (int i = 0; i < kFloats; ++i) result[i] = (lanes >> i & 1) != 0 ? chosen[i] : other[i];
    return result;
}
TANDEM_LANES Words load_pairs(const void* from, LaneMask lanes) {
    Words result{};
    for (int i = 0; i < kFloats; ++i) {
        if ((lanes >> i & 1) != 0) result[i] = static_cast<const WordUnaligned*>(from)[i];
    }
    return result;
}
TANDEM_LANES Words load_quarters(const void* a, const void* b, const void* c, const void* d) {
    Words result;
    const void* const rows[] = {a, b, c, d};
    for (int i = 0; i < kFloats; ++i) result[i] = static_cast<const WordUnaligned*>(rows[i / 4])[i % 4];
    return result;
}
TANDEM_LANES Floats round_floats(const Floats& x) {
    Floats result;
    for (int i = 0; i < kFloats; ++i) result[i] = __builtin_rintf(x[i]);
    return result;
}
TANDEM_LANES Floats scale_floats(const Floats& x, const Floats& n) {
    Floats result;
    for (int i = 0; i < kFloats; ++i) {
        const bool far = !(__builtin_fabsf(n[i]) < 512.0f);
        result[i] = __builtin_ldexpf(x[i], far ? (n[i] > 0 ? 512 : -512) : static_cast<int>(n[i]));
    }
    return result;
}

#endif

// 2^x to about two ulp for x at most 127; 0 below -126, NaN of NaN.
TANDEM_LANES Floats power_of_two(const Floats& x) {
    const LaneMask low = where_greater(all_lanes(-126.0f), x);
    const Floats whole = round_floats(x);
    const Floats r = x - whole;
    Floats p = all_lanes(1.326472713e-03f);  // of least relative error, 9.2e-8, among those that are 1 at 0
    p = fused_floats(p, r, all_lanes(9.671512645e-03f));
    p = fused_floats(p, r, all_lanes(5.550733743e-02f));
    p = fused_floats(p, r, all_lanes(2.402224209e-01f));
    p = fused_floats(p, r, all_lanes(6.931469776e-01f));
    p = fused_floats(p, r, all_lanes(1.0f));
    return select_lanes(low, Floats{}, scale_floats(p, whole));
}

template <int... kLane>
struct LaneList {};
using EveryLane = LaneList<0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15>;

// One step of a transpose in registers: rows i and i + kStep exchange their off-diagonal lanes.
template <int kStep, int... kLane>
TANDEM_LANES void exchange_lanes(Words (&r)[kFloats], LaneList<kLane...>) {
    for (int i = 0; i < kFloats; ++i) {
        if ((i & kStep) != 0) continue;
        const Words a = r[i], b = r[i + kStep];
        r[i] = __builtin_shufflevector(a, b, ((kLane & kStep) != 0 ? kFloats + kLane - kStep : kLane)...);
        r[i + kStep] =
            __builtin_shufflevector(a, b, ((kLane & kStep) != 0 ? kFloats + kLane : kLane + kStep)...);
    }
}
// r[i][j] becomes r[j][i].
TANDEM_LANES void transpose_words(Words (&r)[kFloats]) {
    exchange_lanes<8>(r, EveryLane{});
    exchange_lanes<4>(r, EveryLane{});
    exchange_lanes<2>(r, EveryLane{});
    exchange_lanes<1>(r, EveryLane{});
}

}  // namespace tandem::ops::detail
