// Delta kernels for AVX-512. Compiled with its own -march; see attention/kernels.inl for the rules.
#include <immintrin.h>

#include "common/ops/cpu/delta_kernels.h"

namespace tandem::ops::detail {
namespace {

#define TANDEM_DELTA_INLINE inline __attribute__((always_inline))

TANDEM_DELTA_INLINE std::uint64_t unequal64(const std::uint16_t* a, const std::uint16_t* b) {
    const __mmask32 low = _mm512_cmpneq_epi16_mask(_mm512_loadu_si512(a), _mm512_loadu_si512(b));
    const __mmask32 high = _mm512_cmpneq_epi16_mask(_mm512_loadu_si512(a + 32), _mm512_loadu_si512(b + 32));
    return static_cast<std::uint64_t>(high) << 32 | low;
}

TANDEM_DELTA_INLINE std::uint64_t unequal64(const std::uint32_t* a, const std::uint32_t* b) {
    std::uint64_t bits = 0;
    for (int i = 0; i < 64; i += 16) {
        const __mmask16 part = _mm512_cmpneq_epi32_mask(_mm512_loadu_si512(a + i), _mm512_loadu_si512(b + i));
        bits |= static_cast<std::uint64_t>(part) << i;
    }
    return bits;
}

// Compressed in registers: a compressing store to memory is microcode on some machines.
TANDEM_DELTA_INLINE std::uint32_t* pack64(const std::uint32_t* from, std::uint64_t marked,
                                          std::uint32_t* values) {
    for (int i = 0; i < 64; i += 16) {
        const auto mask = static_cast<__mmask16>(marked >> i);
        _mm512_storeu_si512(values, _mm512_maskz_compress_epi32(mask, _mm512_loadu_si512(from + i)));
        values += __builtin_popcount(mask);
    }
    return values;
}

TANDEM_DELTA_INLINE std::uint16_t* pack64(const std::uint16_t* from, std::uint64_t marked,
                                          std::uint16_t* values) {
    for (int i = 0; i < 64; i += 16) {
        const auto mask = static_cast<__mmask16>(marked >> i);
        const __m256i half = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + i));
        const __m512i packed = _mm512_maskz_compress_epi32(mask, _mm512_cvtepu16_epi32(half));
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(values), _mm512_cvtepi32_epi16(packed));
        values += __builtin_popcount(mask);
    }
    return values;
}

#include "common/ops/cpu/delta_kernels.inl"

}  // namespace

const DeltaKernels kDeltaAvx512{compare<std::uint16_t>, compare<std::uint32_t>, pack<std::uint16_t>,
                                pack<std::uint32_t>, positions};

}  // namespace tandem::ops::detail
