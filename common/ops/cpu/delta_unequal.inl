// unequal(a, b): the bits of the elements of a line of 64 bytes that differ, for the instruction set that the
// including file is compiled for. Nothing here may name std: see attention/kernels.inl.

#define TANDEM_UNEQUAL inline __attribute__((always_inline)) std::uint32_t

#if defined(__AVX512BW__)

TANDEM_UNEQUAL unequal(const std::uint16_t* a, const std::uint16_t* b) {
    return _mm512_cmpneq_epi16_mask(_mm512_loadu_si512(a), _mm512_loadu_si512(b));
}

TANDEM_UNEQUAL unequal(const std::uint32_t* a, const std::uint32_t* b) {
    return _mm512_cmpneq_epi32_mask(_mm512_loadu_si512(a), _mm512_loadu_si512(b));
}

#elif defined(__AVX2__)

inline __attribute__((always_inline)) __m256i load_part(const void* from) {
    return _mm256_loadu_si256(static_cast<const __m256i*>(from));
}

TANDEM_UNEQUAL unequal(const std::uint16_t* a, const std::uint16_t* b) {
    const __m256i low = _mm256_cmpeq_epi16(load_part(a), load_part(b));
    const __m256i high = _mm256_cmpeq_epi16(load_part(a + 16), load_part(b + 16));
    const __m256i bytes = _mm256_permute4x64_epi64(_mm256_packs_epi16(low, high), 0xd8);
    return ~static_cast<std::uint32_t>(_mm256_movemask_epi8(bytes));
}

TANDEM_UNEQUAL unequal(const std::uint32_t* a, const std::uint32_t* b) {
    const __m256i low = _mm256_cmpeq_epi32(load_part(a), load_part(b));
    const __m256i high = _mm256_cmpeq_epi32(load_part(a + 8), load_part(b + 8));
    const auto low_bits = static_cast<std::uint32_t>(_mm256_movemask_ps(_mm256_castsi256_ps(low)));
    const auto high_bits = static_cast<std::uint32_t>(_mm256_movemask_ps(_mm256_castsi256_ps(high)));
    return (low_bits | (high_bits << 8)) ^ 0xffffu;
}

#else

inline __attribute__((always_inline)) __m128i load_part(const void* from) {
    return _mm_loadu_si128(static_cast<const __m128i*>(from));
}

TANDEM_UNEQUAL equal_half(const std::uint16_t* a, const std::uint16_t* b) {
    const __m128i low = _mm_cmpeq_epi16(load_part(a), load_part(b));
    const __m128i high = _mm_cmpeq_epi16(load_part(a + 8), load_part(b + 8));
    return static_cast<std::uint32_t>(_mm_movemask_epi8(_mm_packs_epi16(low, high)));
}

TANDEM_UNEQUAL equal_half(const std::uint32_t* a, const std::uint32_t* b) {
    const __m128i low = _mm_cmpeq_epi32(load_part(a), load_part(b));
    const __m128i high = _mm_cmpeq_epi32(load_part(a + 4), load_part(b + 4));
    const __m128i both = _mm_packs_epi16(_mm_packs_epi32(low, high), _mm_setzero_si128());
    return static_cast<std::uint32_t>(_mm_movemask_epi8(both));
}

template <typename T>
TANDEM_UNEQUAL unequal(const T* a, const T* b) {
    constexpr int kHalf = 32 / sizeof(T);
    const std::uint32_t equal = equal_half(a, b) | equal_half(a + kHalf, b + kHalf) << kHalf;
    return equal ^ (sizeof(T) == 2 ? 0xffffffffu : 0xffffu);
}

#endif
