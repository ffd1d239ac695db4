// The delta kernels, 64 elements at a time, written once. The including file defines, for T of 2 and 4 bytes,
//   std::uint64_t unequal64(const T* a, const T* b)                     the bits of those that differ
//   T* pack64(const T* from, std::uint64_t marked, T* values)           the marked ones appended
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
std::size_t compare(const std::byte* fresh_bytes, const std::byte* base_bytes, std::size_t count,
                    std::byte* bitmap) {
    const T* fresh = reinterpret_cast<const T*>(fresh_bytes);
    const T* base = reinterpret_cast<const T*>(base_bytes);
    std::size_t changed = 0;
    std::size_t at = 0;
    for (; at + 64 <= count; at += 64) {
        const std::uint64_t bits = unequal64(fresh + at, base + at);
        changed += static_cast<std::size_t>(__builtin_popcountll(bits));
        __builtin_memcpy(bitmap + at / 8, &bits, 8);
    }
    std::uint64_t bits = 0;
    for (std::size_t i = at; i < count; ++i) {
        if (element(fresh, i) != element(base, i)) bits |= std::uint64_t{1} << (i - at);
    }
    __builtin_memcpy(bitmap + at / 8, &bits, (count - at + 7) / 8);
    return changed + static_cast<std::size_t>(__builtin_popcountll(bits));
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

// Four at a time whether they are there or not: few words mark more, so the branch is foreseen.
std::size_t positions(const std::byte* bitmap, std::size_t count, std::uint16_t* to) {
    const std::uint16_t* const first = to;
    for (std::size_t at = 0; at < count; at += 64) {
        std::uint64_t bits = load_bits(bitmap + at / 8, (count - at + 7) / 8);
        std::uint16_t* const end = to + __builtin_popcountll(bits);
        do {
            for (int i = 0; i < 4; ++i) {
                const std::uint64_t guarded = bits | std::uint64_t{1} << 63;  // ctz of 0 has no value
                to[i] = static_cast<std::uint16_t>(at + static_cast<std::size_t>(__builtin_ctzll(guarded)));
                bits &= bits - 1;
            }
            to += 4;
        } while (to < end);
        to = end;
    }
    return static_cast<std::size_t>(to - first);
}
