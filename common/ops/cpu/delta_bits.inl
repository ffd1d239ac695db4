// unequal64 and pack64 for instruction sets that cannot compress a vector. The including file defines
// kStep<T>, a number of elements, and unequal(const T*, const T*): the bits of those kStep<T> that differ.

template <typename T>
inline __attribute__((always_inline)) std::uint64_t unequal64(const T* a, const T* b) {
    std::uint64_t bits = 0;
    for (int i = 0; i < 64; i += kStep<T>) bits |= unequal(a + i, b + i) << i;
    return bits;
}

template <typename T>
inline __attribute__((always_inline)) T* pack64(const T* from, std::uint64_t marked, T* values) {
    for (; marked != 0; marked &= marked - 1) {
        __builtin_memcpy(values++, from + __builtin_ctzll(marked), sizeof(T));
    }
    return values;
}
