// Random numbers that depend on a counter and a key only, so that any thread, rank or device makes the same:
// Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011).
#pragma once

#include <cstdint>

#include "common/ops/shared/host_device.h"

namespace tandem::ops::shared {

struct Random128 {
    std::uint32_t words[4];
};

TANDEM_HOST_DEVICE Random128 philox(std::uint64_t counter_low, std::uint64_t counter_high,
                                    std::uint64_t key) {
    auto c0 = static_cast<std::uint32_t>(counter_low);
    auto c1 = static_cast<std::uint32_t>(counter_low >> 32);
    auto c2 = static_cast<std::uint32_t>(counter_high);
    auto c3 = static_cast<std::uint32_t>(counter_high >> 32);
    auto k0 = static_cast<std::uint32_t>(key);
    auto k1 = static_cast<std::uint32_t>(key >> 32);
    for (int round = 0; round < 10; ++round) {
        const std::uint64_t a = std::uint64_t{0xd2511f53u} * c0;
        const std::uint64_t b = std::uint64_t{0xcd9e8d57u} * c2;
        const std::uint32_t n0 = static_cast<std::uint32_t>(b >> 32) ^ c1 ^ k0;
        const std::uint32_t n2 = static_cast<std::uint32_t>(a >> 32) ^ c3 ^ k1;
        c0 = n0;
        c1 = static_cast<std::uint32_t>(b);
        c2 = n2;
        c3 = static_cast<std::uint32_t>(a);
        k0 += 0x9e3779b9u;
        k1 += 0xbb67ae85u;
    }
    return {{c0, c1, c2, c3}};
}

// Sixteen random bits for each element of a tensor: eight neighbours share a draw, which is kept while they
// are asked for in order.
class StochasticBits {
  public:
    TANDEM_MEMBER StochasticBits(std::uint64_t seed, std::uint64_t step) : seed_(seed), step_(step) {}
    TANDEM_MEMBER std::uint32_t of(std::int64_t element) {
        const std::int64_t draw = element >> 3;
        if (draw != draw_) {
            random_ = philox(static_cast<std::uint64_t>(draw), step_, seed_);
            draw_ = draw;
        }
        const auto i = static_cast<unsigned>(element) & 7u;
        const std::uint32_t low = i & 4u ? (i & 2u ? random_.words[3] : random_.words[2])
                                         : (i & 2u ? random_.words[1] : random_.words[0]);
        return (low >> (16u * (i & 1u))) & 0xffffu;
    }

  private:
    std::uint64_t seed_, step_;
    std::int64_t draw_ = -1;
    Random128 random_{};
};

}  // namespace tandem::ops::shared
