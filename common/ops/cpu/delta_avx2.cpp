// Delta kernels for AVX2. Compiled with its own -march; see attention/kernels.inl for the rules.
#include <immintrin.h>

#include "common/ops/cpu/delta_kernels.h"

namespace tandem::ops::detail {
namespace {

template <typename T>
constexpr int kStep = 64 / sizeof(T);

inline __attribute__((always_inline)) __m256i load(const void* from) {
    return _mm256_loadu_si256(static_cast<const __m256i*>(from));
}

inline __attribute__((always_inline)) std::uint64_t unequal(const std::uint16_t* a, const std::uint16_t* b) {
    const __m256i low = _mm256_cmpeq_epi16(load(a), load(b));
    const __m256i high = _mm256_cmpeq_epi16(load(a + 16), load(b + 16));
    const __m256i bytes = _mm256_permute4x64_epi64(_mm256_packs_epi16(low, high), 0xd8);
    return ~static_cast<std::uint32_t>(_mm256_movemask_epi8(bytes));
}

inline __attribute__((always_inline)) std::uint64_t unequal(const std::uint32_t* a, const std::uint32_t* b) {
    const __m256i low = _mm256_cmpeq_epi32(load(a), load(b));
    const __m256i high = _mm256_cmpeq_epi32(load(a + 8), load(b + 8));
    const auto low_bits = static_cast<std::uint32_t>(_mm256_movemask_ps(_mm256_castsi256_ps(low)));
    const auto high_bits = static_cast<std::uint32_t>(_mm256_movemask_ps(_mm256_castsi256_ps(high)));
    return (low_bits | (high_bits << 8)) ^ 0xffffu;
}

#include "common/ops/cpu/delta_bits.inl"
#include "common/ops/cpu/delta_kernels.inl"

}  // namespace

const DeltaKernels kDeltaAvx2{compare<std::uint16_t>, compare<std::uint32_t>, pack<std::uint16_t>,
                              pack<std::uint32_t>, positions};

}  // namespace tandem::ops::detail
