// Random numbers by counter: a stream is named by (seed, purpose, step), and its i-th number is a hash of all
// four. Every rank draws the same numbers without a word, and no draw depends on what was drawn elsewhere.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "common/mix.h"

namespace tandem::trainer {

enum class Purpose : std::uint64_t {
    hold_out = 1,
    sft = 2,
    rollout_prompts = 3,
    rollout_seeds = 4,
    halves = 5,
    evaluation = 6,
    epoch = 7,
    product_rate = 8
};

class Random {
  public:
    Random(std::uint64_t seed, Purpose purpose, std::uint64_t step = 0)
        : key_(mix(mix(mix(seed) ^ static_cast<std::uint64_t>(purpose)) ^ step)) {}

    std::uint64_t bits() { return mix(key_ ^ mix(counter_++)); }
    double uniform() { return static_cast<double>(bits() >> 11) * 0x1.0p-53; }  // [0, 1)
    // 0 … n-1, by 128-bit multiplication; the bias is below n / 2^64.
    std::int64_t below(std::int64_t n) {
        __extension__ using Wide = unsigned __int128;
        return static_cast<std::int64_t>((static_cast<Wide>(bits()) * static_cast<Wide>(n)) >> 64);
    }
    std::vector<std::int64_t> permutation(std::int64_t n) {
        std::vector<std::int64_t> result(static_cast<std::size_t>(n));
        for (std::size_t i = 0; i < result.size(); ++i) result[i] = static_cast<std::int64_t>(i);
        for (std::size_t i = result.size(); i > 1; --i) {
            std::swap(result[i - 1], result[static_cast<std::size_t>(below(static_cast<std::int64_t>(i)))]);
        }
        return result;
    }

  private:
    std::uint64_t key_;
    std::uint64_t counter_ = 0;
};

}  // namespace tandem::trainer
