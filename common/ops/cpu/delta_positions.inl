// positions64 and gaps32 for instruction sets that cannot compress a vector of bytes.

// Four at a time whether they are there or not: few words mark more, so the branch is foreseen.
inline __attribute__((always_inline)) std::uint16_t* positions64(std::uint64_t marked, std::size_t at,
                                                                 std::uint16_t* to) {
    std::uint16_t* const end = to + __builtin_popcountll(marked);
    do {
        for (int i = 0; i < 4; ++i) {
            const std::uint64_t guarded = marked | std::uint64_t{1} << 63;  // ctz of 0 has no value
            to[i] = static_cast<std::uint16_t>(at + static_cast<std::size_t>(__builtin_ctzll(guarded)));
            marked &= marked - 1;
        }
        to += 4;
    } while (to < end);
    return end;
}

inline __attribute__((always_inline)) bool gaps32(const std::uint16_t*, std::size_t, std::byte*&) {
    return false;
}
