// Comparison of 64 elements at a time, written once. The including file defines
//   std::uint64_t compare64(const T* fresh, T* base, T*& values)
// for T of 2 and 4 bytes: the bits of those that differ; their values appended, and the lines of base
// renewed. Nothing here may name std: see attention_kernels.inl.

template <typename T>
std::size_t compare(const DeltaBlock& block) {
    const T* fresh = reinterpret_cast<const T*>(block.fresh);
    T* base = reinterpret_cast<T*>(block.base);
    T* values = reinterpret_cast<T*>(block.values);
    const T* const first = values;
    std::size_t at = 0;
    for (; at + 64 <= block.count; at += 64) {
        const std::uint64_t bits = compare64(fresh + at, base + at, values);
        __builtin_memcpy(block.bitmap + at / 8, &bits, 8);
    }
    std::uint64_t bits = 0;
    for (std::size_t i = at; i < block.count; ++i) {
        T value, old;
        __builtin_memcpy(&value, fresh + i, sizeof(T));
        __builtin_memcpy(&old, base + i, sizeof(T));
        if (value == old) continue;
        bits |= std::uint64_t{1} << (i - at);
        __builtin_memcpy(values++, &value, sizeof(T));
        __builtin_memcpy(base + i, &value, sizeof(T));
    }
    __builtin_memcpy(block.bitmap + at / 8, &bits, (block.count - at + 7) / 8);
    return static_cast<std::size_t>(values - first);
}
