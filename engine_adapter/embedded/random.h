// Random numbers by counter, not by state: the value of (seed, stream, position) is always the same, whatever
// else was drawn before or is running beside it. Philox4x32-10 (Salmon et al., "Parallel random numbers: as
// easy as 1, 2, 3").
#pragma once

#include <array>
#include <cstdint>

namespace tandem::engine {

inline std::array<std::uint32_t, 4> philox4x32(std::array<std::uint32_t, 4> counter,
                                               std::array<std::uint32_t, 2> key) {
    for (int round = 0; round < 10; ++round) {
        const std::uint64_t a = std::uint64_t{0xD2511F53u} * counter[0];
        const std::uint64_t b = std::uint64_t{0xCD9E8D57u} * counter[2];
        counter = {static_cast<std::uint32_t>(b >> 32) ^ counter[1] ^ key[0], static_cast<std::uint32_t>(b),
                   static_cast<std::uint32_t>(a >> 32) ^ counter[3] ^ key[1], static_cast<std::uint32_t>(a)};
        key[0] += 0x9E3779B9u;
        key[1] += 0xBB67AE85u;
    }
    return counter;
}

// Uniform in [0, 1) with 53 random bits.
inline double uniform(std::uint64_t seed, std::uint64_t stream, std::uint64_t position) {
    const auto bits =
        philox4x32({static_cast<std::uint32_t>(position), static_cast<std::uint32_t>(position >> 32),
                    static_cast<std::uint32_t>(stream), static_cast<std::uint32_t>(stream >> 32)},
                   {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)});
    const std::uint64_t word = (std::uint64_t{bits[0]} << 32) | bits[1];
    return static_cast<double>(word >> 11) * 0x1.0p-53;
}

}  // namespace tandem::engine
