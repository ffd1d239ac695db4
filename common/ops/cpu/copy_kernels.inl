// The copy kernels, written once; the including file defines Line, a vector type of 16, 32 or 64 bytes,
// TANDEM_LINE_REGISTER, the asm constraint of its registers, load_line(const std::byte*) and
// stream_store(Line*, Line), and includes <xxhash.h> inlined (XXH_INLINE_ALL) for its instruction set.
// Nothing here may name std: see attention/kernels.inl.

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

constexpr std::size_t kPerLine = 64 / sizeof(Line);

inline __attribute__((always_inline)) void stream_line(const std::byte* from, std::byte* to) {
    Line line[kPerLine];
    __builtin_memcpy(line, from, 64);
    for (std::size_t i = 0; i < kPerLine; ++i) stream_store(reinterpret_cast<Line*>(to) + i, line[i]);
}

// 64 bytes, read once: a peer may write to `from` meanwhile, and what is hashed must be what is written.
struct LoadedLine {
    Line part[kPerLine];
    explicit inline __attribute__((always_inline)) LoadedLine(const std::byte* from) {
        for (std::size_t i = 0; i < kPerLine; ++i) {
            part[i] = load_line(from + i * sizeof(Line));
            // From here on a register, not the memory that it came from.
            asm("" : "+" TANDEM_LINE_REGISTER(part[i]));
        }
    }
};

inline __attribute__((always_inline)) std::size_t to_line(const std::byte* at) {
    return (64 - reinterpret_cast<std::uintptr_t>(at) % 64) % 64;
}

void stream_copy(const std::byte* from, std::byte* to, std::size_t bytes) {
    if (bytes == 0) return;
    // Whole cache lines are streamed; the ragged ends are ordinary stores.
    std::size_t at = to_line(to);
    if (at > bytes) at = bytes;
    __builtin_memcpy(to, from, at);
    for (; at + 64 <= bytes; at += 64) stream_line(from + at, to + at);
    __builtin_memcpy(to + at, from + at, bytes - at);
}

// XXH3's long hash takes a stripe of 64 bytes after the other, each with the secret 8 bytes further on, and
// scrambles the sums after 16. The last stripe that was seen stays in the state's buffer, as the library has
// it.
constexpr std::size_t kStripes = 16;
static_assert(XXH_STRIPE_LEN == 64 && XXH_SECRET_CONSUME_RATE == 8);

enum class Write { none, store, stream };

template <bool flag>
struct Flag {
    static constexpr bool value = flag;
};

template <Prefetch prefetch>
inline __attribute__((always_inline)) void prefetch_line(const std::byte* at) {
    constexpr int kLocality = prefetch == Prefetch::non_temporal ? 0 : prefetch == Prefetch::far ? 1 : 3;
    __builtin_prefetch(at, 0, kLocality);
}

template <Write write>
inline __attribute__((always_inline)) void write_line(const std::byte* from, std::byte* to) {
    if constexpr (write == Write::stream) stream_line(from, to);
    if constexpr (write == Write::store) __builtin_memcpy(to, from, 64);
}

// Takes a stripe into the sums and writes it.
template <Write write>
inline __attribute__((always_inline)) void hash_line(xxh_u64* sums, const std::byte* from, std::byte* to,
                                                     const unsigned char* secret) {
    if constexpr (write == Write::none) {
        XXH3_accumulate_512(sums, from, secret);
    } else {
        const LoadedLine line(from);
        XXH3_accumulate_512(sums, line.part, secret);
        for (std::size_t i = 0; i < kPerLine; ++i) {
            if constexpr (write == Write::stream) stream_store(reinterpret_cast<Line*>(to) + i, line.part[i]);
            if constexpr (write == Write::store)
                __builtin_memcpy(to + i * sizeof(Line), &line.part[i], sizeof(Line));
        }
    }
}

// Calls stripe(i, its secret) for `count` stripes. Sums and seen: the state of the hash.
template <typename Stripe>
inline __attribute__((always_inline)) void hash_stripes(xxh_u64* sums, std::size_t& seen, std::size_t count,
                                                        const Stripe& stripe) {
    constexpr std::size_t kSecretEnd = XXH3_SECRET_DEFAULT_SIZE - XXH_STRIPE_LEN;
    for (std::size_t at = 0; at < count;) {
        const std::size_t left = count - at;
        const bool whole = seen == 0 && left >= kStripes;
        const std::size_t run = whole ? kStripes : (kStripes - seen < left ? kStripes - seen : left);
        const unsigned char* secret = XXH3_kSecret + 8 * seen;
        if (whole) {
#pragma GCC unroll 16
            for (std::size_t i = 0; i < kStripes; ++i) stripe(at + i, secret + 8 * i);
        } else {
            for (std::size_t i = 0; i < run; ++i) stripe(at + i, secret + 8 * i);
        }
        seen += run;
        if (seen == kStripes) {
            XXH3_scrambleAcc(sums, XXH3_kSecret + kSecretEnd);
            seen = 0;
        }
        at += run;
    }
}

// Hashes `count` stripes and writes the 64 bytes at `head` behind each (kHead: 0 to 63 of them; else each
// itself, read once).
template <Write write, Prefetch prefetch, bool kHead>
inline __attribute__((always_inline)) void hash_run(xxh_u64* sums, std::size_t& seen, const std::byte* from,
                                                    std::byte* to, std::size_t head, std::size_t count,
                                                    std::size_t ahead) {
    hash_stripes(
        sums, seen, count, [&](std::size_t i, const unsigned char* secret) __attribute__((always_inline)) {
            prefetch_line<prefetch>(from + 64 * i + ahead);
            if constexpr (kHead) {
                XXH3_accumulate_512(sums, from + 64 * i, secret);
                write_line<write>(from + 64 * i + head, to + 64 * i + head);
            } else {
                hash_line<write>(sums, from + 64 * i, to + (write == Write::none ? 0 : 64 * i), secret);
            }
        });
}

// Short inputs have another hash: the library keeps the bytes until the input is known to be long.
template <Write write>
void hash_short(XXH3_state_t* hash, const CopyLines& lines) {
    for (std::int64_t row = 0; row < lines.rows; ++row) {
        std::byte once[sizeof(hash->buffer)];
        __builtin_memcpy(once, lines.from + static_cast<std::size_t>(row) * lines.from_stride, lines.bytes);
        XXH3_128bits_update(hash, once, lines.bytes);
        if constexpr (write != Write::none)
            __builtin_memcpy(lines.to + static_cast<std::size_t>(row) * lines.to_stride, once, lines.bytes);
    }
}

// Back into the state, whose buffer holds the last stripe of `bytes` more.
inline __attribute__((always_inline)) void finish_hash(XXH3_state_t* hash, const xxh_u64* sums,
                                                       std::size_t seen, std::size_t bytes) {
    hash->bufferedSize = 64;
    hash->nbStripesSoFar = seen;
    hash->totalLen += bytes;
    __builtin_memcpy(hash->acc, sums, 64);
}

template <Write write, Prefetch prefetch>
void hash_lines(HashState& state, const CopyLines& lines) {
    XXH3_state_t* hash = state_of(state);
    const std::size_t bytes = static_cast<std::size_t>(lines.rows) * lines.bytes;
    if (hash->totalLen + bytes <= sizeof(hash->buffer)) return hash_short<write>(hash, lines);
    alignas(64) xxh_u64 sums[8];
    __builtin_memcpy(sums, hash->acc, 64);
    std::size_t seen = hash->nbStripesSoFar;
    const auto* held = reinterpret_cast<const std::byte*>(hash->buffer);
    hash_run<Write::none, prefetch, false>(sums, seen, held, nullptr, 0, hash->bufferedSize / 64, 0);

    const std::byte* from = lines.from;
    std::byte* to = lines.to;
    const Ahead ahead(lines.bytes, lines.from_stride, lines.rows);
    for (std::int64_t row = 0; row < lines.rows; ++row) {
        const bool last_row = row + 1 == lines.rows;
        const std::size_t head = write == Write::stream ? to_line(to) : 0;
        if (head > 0) __builtin_memcpy(to, from, head);
        const std::size_t count = lines.bytes / 64 - (head > 0 || last_row ? 1 : 0);
        const std::size_t within = ahead.within / 64;
        const auto run = [&](auto has_head) __attribute__((always_inline)) {
            constexpr bool kHead = decltype(has_head)::value;
            hash_run<write, prefetch, kHead>(sums, seen, from, to, head, within, ahead.bytes);
            hash_run<write, prefetch, kHead>(sums, seen, from + 64 * within,
                                             to + (write == Write::none ? 0 : 64 * within), head,
                                             count - within, ahead.beyond);
        };
        head > 0 ? run(Flag<write == Write::stream>()) : run(Flag<false>());
        if (head > 0 || last_row) {
            const std::byte* end = from + 64 * count;
            if (last_row) {
                __builtin_memcpy(hash->buffer, end, 64);
                end = held;
            } else {
                hash_run<Write::none, prefetch, false>(sums, seen, end, nullptr, 0, 1, 0);
            }
            if (head > 0) {
                __builtin_memcpy(to + 64 * count + head, end + head, 64 - head);
            } else if constexpr (write != Write::none) {
                write_line<write>(end, to + 64 * count);
            }
        }
        from += lines.from_stride;
        if constexpr (write != Write::none) to += lines.to_stride;
    }
    finish_hash(hash, sums, seen, bytes);
}

// Marks the elements of `count` lines that differ.
template <typename T, bool kRenew>
struct LineCompare {
    const std::byte* fresh;
    std::byte* base;
    std::byte* bitmap;
    std::size_t changed = 0;

    inline __attribute__((always_inline)) void take(std::size_t line) {
        constexpr std::size_t kBitmapBytes = 64 / sizeof(T) / 8;
        const std::uint32_t bits = unequal(reinterpret_cast<const T*>(fresh + 64 * line),
                                           reinterpret_cast<const T*>(base + 64 * line));
        __builtin_memcpy(bitmap + kBitmapBytes * line, &bits, kBitmapBytes);
        changed += static_cast<std::size_t>(__builtin_popcount(bits));
        if constexpr (kRenew) __builtin_memcpy(base + 64 * line, fresh + 64 * line, 64);
    }
};

template <typename T, bool kRenew, Prefetch prefetch>
std::size_t compare_lines(HashState& state, const std::byte* fresh, std::byte* base, std::size_t count,
                          std::byte* bitmap) {
    LineCompare<T, kRenew> lines{fresh, base, bitmap};
    XXH3_state_t* hash = state_of(state);
    if (hash->totalLen + 64 * count <= sizeof(hash->buffer)) {  // see hash_short
        for (std::size_t i = 0; i < count; ++i) lines.take(i);
        XXH3_128bits_update(hash, fresh, 64 * count);
        return lines.changed;
    }
    alignas(64) xxh_u64 sums[8];
    __builtin_memcpy(sums, hash->acc, 64);
    std::size_t seen = hash->nbStripesSoFar;
    const auto* held = reinterpret_cast<const std::byte*>(hash->buffer);
    hash_run<Write::none, prefetch, false>(sums, seen, held, nullptr, 0, hash->bufferedSize / 64, 0);
    const auto prefetch_ahead = [&](std::size_t i) __attribute__((always_inline)) {
        prefetch_line<prefetch>(fresh + 64 * i + Ahead::kPacked);
        prefetch_line<prefetch>(base + 64 * i + Ahead::kPacked);
    };
    // The memory ahead of a long block's end is prefetched last: it comes while the caller does something else.
    constexpr std::size_t kLate = 24;
    const std::size_t last = count - 1, early = last > 2 * kLate ? last - kLate : last;
    hash_stripes(
        sums, seen, last, [&](std::size_t i, const unsigned char* secret) __attribute__((always_inline)) {
            if (i < early) prefetch_ahead(i);
            XXH3_accumulate_512(sums, fresh + 64 * i, secret);
            lines.take(i);
        });
    lines.take(last);
    for (std::size_t i = early; i < count; ++i) prefetch_ahead(i);
    __builtin_memcpy(hash->buffer, fresh + 64 * last, 64);
    finish_hash(hash, sums, seen, 64 * count);
    return lines.changed;
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

template <Prefetch prefetch>
void prefetch_rows(const std::byte* from, std::size_t in_row, std::size_t bytes, const Ahead& ahead) {
    for (std::size_t at = 0; at < bytes; at += 64)
        prefetch_line<prefetch>(from + at + (in_row + at < ahead.within ? ahead.bytes : ahead.beyond));
}

template <Prefetch prefetch>
constexpr CopyKernels kernels_with() {
    return {hash_begin,
            hash_update,
            hash_end,
            hash_lines<Write::none, prefetch>,
            hash_lines<Write::store, prefetch>,
            hash_lines<Write::stream, prefetch>,
            compare_lines<std::uint16_t, false, prefetch>,
            compare_lines<std::uint32_t, false, prefetch>,
            compare_lines<std::uint16_t, true, prefetch>,
            compare_lines<std::uint32_t, true, prefetch>,
            prefetch_rows<prefetch>,
            stream_copy,
            narrow_block,
            widen_block,
            store_fence};
}

constexpr CopyKernelSet kKernels{kernels_with<Prefetch::non_temporal>(), kernels_with<Prefetch::far>(),
                                 kernels_with<Prefetch::near>()};
