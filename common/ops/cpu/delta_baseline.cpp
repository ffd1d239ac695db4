// Delta kernels for any x86-64. Compiled with its own -march; see attention/kernels.inl for the rules.
#include <immintrin.h>

#include "common/ops/cpu/delta_kernels.h"

namespace tandem::ops::detail {
namespace {

template <typename T>
constexpr int kStep = 32 / sizeof(T);

inline __attribute__((always_inline)) __m128i load(const void* from) {
    return _mm_loadu_si128(static_cast<const __m128i*>(from));
}

inline __attribute__((always_inline)) std::uint64_t unequal(const std::uint16_t* a, const std::uint16_t* b) {
    const __m128i low = _mm_cmpeq_epi16(load(a), load(b));
    const __m128i high = _mm_cmpeq_epi16(load(a + 8), load(b + 8));
    return static_cast<std::uint32_t>(_mm_movemask_epi8(_mm_packs_epi16(low, high))) ^ 0xffffu;
}

inline __attribute__((always_inline)) std::uint64_t unequal(const std::uint32_t* a, const std::uint32_t* b) {
    const __m128i low = _mm_cmpeq_epi32(load(a), load(b));
    const __m128i high = _mm_cmpeq_epi32(load(a + 4), load(b + 4));
    const __m128i both = _mm_packs_epi16(_mm_packs_epi32(low, high), _mm_setzero_si128());
    return static_cast<std::uint32_t>(_mm_movemask_epi8(both)) ^ 0xffu;
}

#include "common/ops/cpu/delta_bits.inl"
#include "common/ops/cpu/delta_kernels.inl"

}  // namespace

const DeltaKernels kDeltaBaseline{compare<std::uint16_t>, compare<std::uint32_t>, pack<std::uint16_t>,
                                  pack<std::uint32_t>, positions};

}  // namespace tandem::ops::detail
