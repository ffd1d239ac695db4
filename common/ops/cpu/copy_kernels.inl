// The copy kernels, written once; the including file defines Line, a vector type of 16, 32 or 64 bytes, and
// stream_store(Line*, Line), and includes <xxhash.h> inlined (XXH_INLINE_ALL) for its instruction set.
// Nothing here may name std: see attention_kernels.inl.

static_assert(sizeof(XXH3_state_t) <= sizeof(HashState));

XXH3_state_t* state_of(HashState& state) {
    return reinterpret_cast<XXH3_state_t*>(state.bytes);
}

void hash_begin(HashState& state) {
    XXH3_INITSTATE(state_of(state));
    XXH3_128bits_reset(state_of(state));
}

void hash_update(HashState& state, const std::byte* data, std::size_t bytes) {
    XXH3_128bits_update(state_of(state), data, bytes);
}

void hash_end(const HashState& state, std::uint64_t& low, std::uint64_t& high) {
    const XXH128_hash_t digest = XXH3_128bits_digest(reinterpret_cast<const XXH3_state_t*>(state.bytes));
    low = digest.low64;
    high = digest.high64;
}

void stream_copy(const std::byte* from, std::byte* to, std::size_t bytes) {
    // Whole cache lines are streamed; the ragged ends are ordinary stores.
    std::size_t head = (64 - reinterpret_cast<std::uintptr_t>(to) % 64) % 64;
    if (head > bytes) head = bytes;
    __builtin_memcpy(to, from, head);
    std::size_t at = head;
    constexpr std::size_t kPerLine = 64 / sizeof(Line);
    for (; at + 64 <= bytes; at += 64) {
        __builtin_prefetch(from + at + bytes);  // the next block is read while this one is written
        Line line[kPerLine];
        __builtin_memcpy(line, from + at, 64);
        for (std::size_t i = 0; i < kPerLine; ++i)
            stream_store(reinterpret_cast<Line*>(to + at) + i, line[i]);
    }
    __builtin_memcpy(to + at, from + at, bytes - at);
}

void narrow_block(const std::byte* from, std::byte* to, std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i) {
        std::uint32_t u;
        __builtin_memcpy(&u, from + 4 * i, 4);
        const std::uint32_t rounded = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
        const std::uint32_t quiet = (u >> 16) | 0x40u;
        const auto half = static_cast<std::uint16_t>((u & 0x7fffffffu) > 0x7f800000u ? quiet : rounded);
        __builtin_memcpy(to + 2 * i, &half, 2);
    }
}

void widen_block(const std::byte* from, std::byte* to, std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i) {
        std::uint16_t half;
        __builtin_memcpy(&half, from + 2 * i, 2);
        const std::uint32_t u = static_cast<std::uint32_t>(half) << 16;
        __builtin_memcpy(to + 4 * i, &u, 4);
    }
}
