// compare64 for instruction sets that cannot compress a vector. The including file defines kStep<T>, a number
// of elements, and unequal(const T*, const T*): the bits of those kStep<T> that differ.

template <typename T>
inline __attribute__((always_inline)) std::uint64_t compare64(const T* fresh, T* base, T*& values) {
    std::uint64_t bits = 0;
    for (int i = 0; i < 64; i += kStep<T>) {
        const std::uint64_t changed = unequal(fresh + i, base + i);
        if (changed == 0) continue;
        for (std::uint64_t left = changed; left != 0; left &= left - 1) {
            __builtin_memcpy(values++, fresh + i + __builtin_ctzll(left), sizeof(T));
        }
        __builtin_memcpy(base + i, fresh + i, kStep<T> * sizeof(T));
        bits |= changed << i;
    }
    return bits;
}
