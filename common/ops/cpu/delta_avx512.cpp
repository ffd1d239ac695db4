// Delta kernels for AVX-512. Compiled with its own -march; see attention_kernels.inl for the rules.
#include <immintrin.h>

#include "common/ops/cpu/delta_kernels.h"

namespace tandem::ops::detail {
namespace {

#define TANDEM_DELTA_INLINE inline __attribute__((always_inline))

// Compressed in registers: a compressing store to memory is microcode on some machines.
TANDEM_DELTA_INLINE void take(__m512i lanes, __mmask16 changed, std::uint32_t*& values) {
    _mm512_storeu_si512(values, _mm512_maskz_compress_epi32(changed, lanes));
    values += __builtin_popcount(changed);
}

TANDEM_DELTA_INLINE void take(__m256i half, __mmask16 changed, std::uint16_t*& values) {
    const __m512i packed = _mm512_maskz_compress_epi32(changed, _mm512_cvtepu16_epi32(half));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(values), _mm512_cvtepi32_epi16(packed));
    values += __builtin_popcount(changed);
}

TANDEM_DELTA_INLINE std::uint64_t compare64(const std::uint16_t* fresh, std::uint16_t* base,
                                            std::uint16_t*& values) {
    std::uint64_t bits = 0;
    for (int i = 0; i < 64; i += 32) {
        const __m512i now = _mm512_loadu_si512(fresh + i);
        const __mmask32 changed = _mm512_cmpneq_epi16_mask(now, _mm512_loadu_si512(base + i));
        bits |= static_cast<std::uint64_t>(changed) << i;
        if (changed == 0) continue;
        _mm512_storeu_si512(base + i, now);
        take(_mm512_castsi512_si256(now), static_cast<__mmask16>(changed), values);
        take(_mm512_extracti64x4_epi64(now, 1), static_cast<__mmask16>(changed >> 16), values);
    }
    return bits;
}

TANDEM_DELTA_INLINE std::uint64_t compare64(const std::uint32_t* fresh, std::uint32_t* base,
                                            std::uint32_t*& values) {
    std::uint64_t bits = 0;
    for (int i = 0; i < 64; i += 16) {
        const __m512i now = _mm512_loadu_si512(fresh + i);
        const __mmask16 changed = _mm512_cmpneq_epi32_mask(now, _mm512_loadu_si512(base + i));
        bits |= static_cast<std::uint64_t>(changed) << i;
        if (changed == 0) continue;
        _mm512_storeu_si512(base + i, now);
        take(now, changed, values);
    }
    return bits;
}

#include "common/ops/cpu/delta_kernels.inl"

}  // namespace

const DeltaKernels kDeltaAvx512{compare<std::uint16_t>, compare<std::uint32_t>};

}  // namespace tandem::ops::detail
