// XXH3-128 of more than 240 bytes (Collet, xxHash 0.8), cut so that many threads can share one hash: the sums
// of a block of 1024 bytes do not depend on what came before, and the chain over the blocks' sums is short.
// The same digest as the library's, to which shorter inputs are left.
#pragma once

#include <cstdint>

#include "common/ops/shared/host_device.h"

namespace tandem::ops::shared {

inline constexpr std::uint64_t kXxh3Long = 240;  // longer inputs are hashed as here
inline constexpr std::uint64_t kXxh3Block = 1024;
inline constexpr std::uint64_t kXxh3Stripe = 64;

struct Xxh3Secret {
    alignas(8) unsigned char bytes[192];

    TANDEM_MEMBER std::uint64_t word(std::uint64_t at) const {
        std::uint64_t value = 0;
        for (unsigned i = 0; i < 8; ++i) value |= std::uint64_t{bytes[at + i]} << (8 * i);
        return value;
    }
    // word(8 n), in one access.
    TANDEM_MEMBER std::uint64_t whole_word(unsigned n) const {
        std::uint64_t value;
        __builtin_memcpy(&value, __builtin_assume_aligned(bytes + 8 * n, 8), 8);
        return value;
    }
};

Xxh3Secret xxh3_secret();  // the library's

struct Xxh3Sums {
    std::uint64_t lanes[8];
};

// The stripes that are summed, and the blocks that a scramble follows. The last byte never counts: it belongs
// to the last 64 bytes, which are added at the end, although some of them may have been summed before.
TANDEM_HOST_DEVICE std::uint64_t xxh3_stripes(std::uint64_t length) {
    return (length - 1) / kXxh3Stripe;
}
TANDEM_HOST_DEVICE std::uint64_t xxh3_full_blocks(std::uint64_t length) {
    return (length - 1) / kXxh3Block;
}
TANDEM_HOST_DEVICE std::uint64_t xxh3_blocks(std::uint64_t length) {
    return (length + kXxh3Block - 1) / kXxh3Block;
}

// The product of lane j's value v, which is added to sum j; v itself is added to sum j ^ 1.
TANDEM_HOST_DEVICE std::uint64_t xxh3_product(std::uint64_t v, std::uint64_t secret) {
    const std::uint64_t key = v ^ secret;
    return (key & 0xffffffffu) * (key >> 32);
}

TANDEM_HOST_DEVICE std::uint64_t xxh3_scramble(std::uint64_t sum, std::uint64_t secret) {
    return ((sum ^ (sum >> 47)) ^ secret) * 0x9e3779b1u;
}

inline constexpr std::uint64_t kXxh3ScrambleSecret = 128;  // of lane j: 8 j further
inline constexpr std::uint64_t kXxh3LastSecret = 121;      // of the last 64 bytes

TANDEM_HOST_DEVICE std::uint64_t xxh3_start(unsigned lane) {
    switch (lane) {
        case 0:
            return 0xc2b2ae3du;
        case 1:
            return 0x9e3779b185ebca87u;
        case 2:
            return 0xc2b2ae3d27d4eb4fu;
        case 3:
            return 0x165667b19e3779f9u;
        case 4:
            return 0x85ebca77c2b2ae63u;
        case 5:
            return 0x85ebca77u;
        case 6:
            return 0x27d4eb2f165667c5u;
        default:
            return 0x9e3779b1u;
    }
}

// The digest from the sums after all blocks and the last 64 bytes.
TANDEM_HOST_DEVICE std::uint64_t xxh3_merge(const Xxh3Sums& sums, const Xxh3Secret& secret, std::uint64_t at,
                                            std::uint64_t start) {
    std::uint64_t result = start;
    for (unsigned i = 0; i < 4; ++i) {
        __extension__ using Wide = unsigned __int128;
        const Wide product = Wide{sums.lanes[2 * i] ^ secret.word(at + 16 * i)} *
                             (sums.lanes[2 * i + 1] ^ secret.word(at + 16 * i + 8));
        result += static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64);
    }
    result = (result ^ (result >> 37)) * 0x165667919e3779f9u;
    return result ^ (result >> 32);
}

TANDEM_HOST_DEVICE void xxh3_digest(const Xxh3Sums& sums, const Xxh3Secret& secret, std::uint64_t length,
                                    std::uint64_t& low, std::uint64_t& high) {
    low = xxh3_merge(sums, secret, 11, length * 0x9e3779b185ebca87u);
    high = xxh3_merge(sums, secret, 192 - 64 - 11, ~(length * 0xc2b2ae3d27d4eb4fu));
}

}  // namespace tandem::ops::shared
