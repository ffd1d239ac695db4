// pack64 and unpack64 for instruction sets that cannot compress a vector.

template <typename T>
inline __attribute__((always_inline)) T* pack64(const T* from, std::uint64_t marked, T* values) {
    for (; marked != 0; marked &= marked - 1) {
        __builtin_memcpy(values++, from + __builtin_ctzll(marked), sizeof(T));
    }
    return values;
}

template <typename T>
inline __attribute__((always_inline)) const T* unpack64(const T* values, std::uint64_t marked, T* to) {
    for (; marked != 0; marked &= marked - 1) {
        __builtin_memcpy(to + __builtin_ctzll(marked), values++, sizeof(T));
    }
    return values;
}
