// The delta kernels, 64 elements at a time, written once. The including file defines
//   T* pack64(const T* from, uint64_t marked, T* values)                  the marked ones appended
//   const T* unpack64(const T* values, uint64_t marked, T* to)            the next ones over the marked of 64
//   uint16_t* positions64(uint64_t marked, size_t at, uint16_t* to)       their numbers, from `at` on
//   bool gaps32(const uint16_t* positions, size_t count, byte*& to)       see gaps; false: nothing done, it cannot
// for T of 2 and 4 bytes.
// Nothing here may name std: see attention/kernels.inl.

inline __attribute__((always_inline)) std::uint64_t load_bits(const std::byte* bitmap, std::size_t bytes) {
    std::uint64_t bits = 0;
    if (bytes >= 8) {
        __builtin_memcpy(&bits, bitmap, 8);
    } else {
        __builtin_memcpy(&bits, bitmap, bytes);
    }
    return bits;
}

// Elements of a rest, one at a time.
template <typename T>
inline __attribute__((always_inline)) T element(const T* from, std::size_t i) {
    T value;
    __builtin_memcpy(&value, from + i, sizeof(T));
    return value;
}

template <typename T>
void pack(const std::byte* fresh_bytes, const std::byte* bitmap, std::size_t count, std::byte* values_bytes) {
    const T* fresh = reinterpret_cast<const T*>(fresh_bytes);
    T* values = reinterpret_cast<T*>(values_bytes);
    std::size_t at = 0;
    for (; at + 64 <= count; at += 64) values = pack64(fresh + at, load_bits(bitmap + at / 8, 8), values);
    for (std::uint64_t bits = load_bits(bitmap + at / 8, (count - at + 7) / 8); bits != 0; bits &= bits - 1) {
        const T value = element(fresh, at + static_cast<std::size_t>(__builtin_ctzll(bits)));
        __builtin_memcpy(values++, &value, sizeof(T));
    }
}

template <typename T>
DeltaKernels::Unpacked unpack(const std::byte* bitmap, std::size_t words, const std::byte* value_bytes,
                              std::size_t left, std::byte* to_bytes) {
    const T* const first = reinterpret_cast<const T*>(value_bytes);
    const T* values = first;
    const T* const end = first + left;
    T* to = reinterpret_cast<T*>(to_bytes);
    std::size_t word = 0;
    for (; word < words && end - values >= 64; ++word, to += 64) {
        std::uint64_t marked = load_bits(bitmap + 8 * word, 8);
        asm("" : "+r"(marked));  // read once: a peer may write to the bitmap meanwhile
        values = unpack64(values, marked, to);
    }
    return {word, static_cast<std::size_t>(values - first)};
}

std::size_t positions(const std::byte* bitmap, std::size_t count, std::uint16_t* to) {
    const std::uint16_t* const first = to;
    for (std::size_t at = 0; at < count; at += 64)
        to = positions64(load_bits(bitmap + at / 8, (count - at + 7) / 8), at, to);
    return static_cast<std::size_t>(to - first);
}

inline __attribute__((always_inline)) std::byte* append_gap(std::size_t gap, std::byte* to) {
    for (; gap >= 510; gap -= 255) *to++ = std::byte{255};
    // Gaps from 255 on are frequent, but not to be foreseen: no branch.
    const std::size_t wide = gap >= 255 ? 1 : 0;
    *to = std::byte{255};
    to += wide;
    *to++ = static_cast<std::byte>(gap - 255 * wide);
    return to;
}

std::size_t gaps(const std::uint16_t* positions, std::size_t count, std::byte* to) {
    std::byte* const first = to;
    for (std::size_t at = 1; at < count; at += 32) {
        const std::size_t part = count - at < 32 ? count - at : 32;
        if (gaps32(positions + at, part, to)) continue;
        for (std::size_t i = at; i < at + part; ++i)
            to = append_gap(static_cast<std::size_t>(positions[i]) - positions[i - 1] - 1u, to);
    }
    return static_cast<std::size_t>(to - first);
}
