// pack64, unpack64, positions64 and gaps32 for AVX-512, with VBMI2 where the including file is compiled for it.
// Compressed in registers: a compressing store to memory is microcode on some machines.

#define TANDEM_DELTA_INLINE inline __attribute__((always_inline))

TANDEM_DELTA_INLINE std::uint32_t* pack64(const std::uint32_t* from, std::uint64_t marked,
                                          std::uint32_t* values) {
    for (int i = 0; i < 64; i += 16) {
        const auto mask = static_cast<__mmask16>(marked >> i);
        _mm512_storeu_si512(values, _mm512_maskz_compress_epi32(mask, _mm512_loadu_si512(from + i)));
        values += __builtin_popcount(mask);
    }
    return values;
}

TANDEM_DELTA_INLINE const std::uint32_t* unpack64(const std::uint32_t* values, std::uint64_t marked,
                                                  std::uint32_t* to) {
    for (int i = 0; i < 64; i += 16) {
        const auto mask = static_cast<__mmask16>(marked >> i);
        const __m512i old = _mm512_loadu_si512(to + i);
        _mm512_storeu_si512(to + i, _mm512_mask_expand_epi32(old, mask, _mm512_loadu_si512(values)));
        values += __builtin_popcount(mask);
    }
    return values;
}

#if defined(__AVX512VBMI2__)

TANDEM_DELTA_INLINE std::uint16_t* pack64(const std::uint16_t* from, std::uint64_t marked,
                                          std::uint16_t* values) {
    for (int i = 0; i < 64; i += 32) {
        const auto mask = static_cast<__mmask32>(marked >> i);
        _mm512_storeu_si512(values, _mm512_maskz_compress_epi16(mask, _mm512_loadu_si512(from + i)));
        values += __builtin_popcount(mask);
    }
    return values;
}

TANDEM_DELTA_INLINE const std::uint16_t* unpack64(const std::uint16_t* values, std::uint64_t marked,
                                                  std::uint16_t* to) {
    for (int i = 0; i < 64; i += 32) {
        const auto mask = static_cast<__mmask32>(marked >> i);
        const __m512i old = _mm512_loadu_si512(to + i);
        _mm512_storeu_si512(to + i, _mm512_mask_expand_epi16(old, mask, _mm512_loadu_si512(values)));
        values += __builtin_popcount(mask);
    }
    return values;
}

TANDEM_DELTA_INLINE std::uint16_t* positions64(std::uint64_t marked, std::size_t at, std::uint16_t* to) {
    alignas(64) static constexpr std::uint8_t kNumbers[64] = {
        0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21,
        22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 43,
        44, 45, 46, 47, 48, 49, 50, 51, 52, 53, 54, 55, 56, 57, 58, 59, 60, 61, 62, 63};
    const __m512i found = _mm512_maskz_compress_epi8(marked, _mm512_load_si512(kNumbers));
    const __m512i first = _mm512_set1_epi16(static_cast<short>(at));
    _mm512_storeu_si512(to, _mm512_add_epi16(first, _mm512_cvtepu8_epi16(_mm512_castsi512_si256(found))));
    const int count = __builtin_popcountll(marked);
    if (count > 32) {
        const __m256i rest = _mm512_extracti64x4_epi64(found, 1);
        _mm512_storeu_si512(to + 32, _mm512_add_epi16(first, _mm512_cvtepu8_epi16(rest)));
    }
    return to + count;
}

TANDEM_DELTA_INLINE bool gaps32(const std::uint16_t* positions, std::size_t count, std::byte*& to) {
    const __mmask32 some = _bzhi_u32(~0u, static_cast<std::uint32_t>(count));
    const __m512i behind = _mm512_add_epi16(_mm512_loadu_si512(positions - 1), _mm512_set1_epi16(1));
    const __m512i gap = _mm512_sub_epi16(_mm512_loadu_si512(positions), behind);
    if (_mm512_mask_cmpge_epu16_mask(some, gap, _mm512_set1_epi16(510)) != 0) return false;
    const __m512i all = _mm512_set1_epi16(255);
    const __mmask32 wide = _mm512_mask_cmpge_epu16_mask(some, gap, all);
    // The two bytes of a word: 255 and the rest of a wide gap, else the gap and one to drop.
    const __m512i rest = _mm512_slli_epi16(_mm512_sub_epi16(gap, all), 8);
    const __m512i bytes = _mm512_mask_blend_epi16(wide, gap, _mm512_or_si512(rest, all));
    const std::uint64_t kept = _pdep_u64(some, 0x5555555555555555u) | _pdep_u64(wide, 0xaaaaaaaaaaaaaaaau);
    _mm512_storeu_si512(to, _mm512_maskz_compress_epi8(kept, bytes));
    to += static_cast<std::size_t>(__builtin_popcountll(kept));
    return true;
}

#else

TANDEM_DELTA_INLINE __m512i load_wide(const std::uint16_t* from) {
    return _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
}

TANDEM_DELTA_INLINE std::uint16_t* pack64(const std::uint16_t* from, std::uint64_t marked,
                                          std::uint16_t* values) {
    for (int i = 0; i < 64; i += 16) {
        const auto mask = static_cast<__mmask16>(marked >> i);
        const __m512i packed = _mm512_maskz_compress_epi32(mask, load_wide(from + i));
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(values), _mm512_cvtepi32_epi16(packed));
        values += __builtin_popcount(mask);
    }
    return values;
}

TANDEM_DELTA_INLINE const std::uint16_t* unpack64(const std::uint16_t* values, std::uint64_t marked,
                                                  std::uint16_t* to) {
    for (int i = 0; i < 64; i += 16) {
        const auto mask = static_cast<__mmask16>(marked >> i);
        const __m512i wide = _mm512_mask_expand_epi32(load_wide(to + i), mask, load_wide(values));
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + i), _mm512_cvtepi32_epi16(wide));
        values += __builtin_popcount(mask);
    }
    return values;
}

#include "common/ops/cpu/delta_positions.inl"

#endif
