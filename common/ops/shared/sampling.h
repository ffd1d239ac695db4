// Choosing by rank without sorting: a radix descent over the bits of the weights e^((x - max) / temperature),
// all in [0, 1]. Each level splits what is left into buckets by the next bits, and goes into the one in which
// a count or a mass is reached, heaviest first. Within a bucket the exponent is one, so masses are sums of
// integers: exact, whatever their order.
#pragma once

#include <cmath>
#include <cstdint>

#include "common/ops/shared/bits.h"

namespace tandem::ops::shared {

TANDEM_HOST_DEVICE float sampling_weight(float logit, float largest, float inverse_temperature) {
    return expf((logit - largest) * inverse_temperature);
}

inline constexpr int kSamplingLevels = 5;  // the exponent, then the mantissa's 7, 7, 7 and 2 bits
inline constexpr int kSamplingBuckets = 128;

TANDEM_HOST_DEVICE int sampling_shift(int level) {
    return level < 4 ? 23 - 7 * level : 0;
}
TANDEM_HOST_DEVICE unsigned sampling_bucket(std::uint32_t bits, int level) {
    return bits >> sampling_shift(level) & (level < 4 ? 127u : 3u);
}
// Whether the bits above this level are those of `prefix`.
TANDEM_HOST_DEVICE bool sampling_within(std::uint32_t bits, std::uint32_t prefix, int level) {
    return level == 0 || bits >> sampling_shift(level - 1) == prefix >> sampling_shift(level - 1);
}
// A weight as an integer, in units of 2^(exponent - 150).
TANDEM_HOST_DEVICE std::uint32_t sampling_units(std::uint32_t bits) {
    return bits < (1u << 23) ? bits : (bits & 0x7fffffu) | (1u << 23);
}
TANDEM_HOST_DEVICE double sampling_mass(std::uint64_t units, unsigned exponent) {
    return ldexp(static_cast<double>(units), static_cast<int>(exponent > 0 ? exponent : 1) - 150);
}

// The state of a descent: count and mass of the weights heavier than `bits` (of which the levels so far are
// known), and how many weights its bucket holds.
struct SamplingPlace {
    std::uint32_t bits = 0;
    std::uint64_t above = 0;
    double mass = 0.0;  // of those above
    std::uint64_t ties = 0;
};

// One level down, into the first bucket with reached(count, mass) of it and all that is above it; without one
// into the last bucket that holds anything, and false. Some bucket must hold something.
template <typename Reached>
TANDEM_HOST_DEVICE bool sampling_descend(SamplingPlace& place, int level, const std::uint32_t* counts,
                                         const double* masses, const Reached& reached) {
    SamplingPlace next = place, walked = place;
    for (int b = kSamplingBuckets - 1; b >= 0; --b) {
        if (counts[b] == 0) continue;
        next = walked;
        next.bits = place.bits | static_cast<std::uint32_t>(b) << sampling_shift(level);
        next.ties = counts[b];
        walked.above += counts[b];
        walked.mass += masses[b];
        if (!reached(walked.above, walked.mass)) continue;
        place = next;
        return true;
    }
    place = next;
    return false;
}

// The last weight that top_k and top_p leave: `kept` of the ties at `place`.
struct SamplingCut {
    std::uint64_t limit;  // by top_k
    double wanted;        // by top_p: the mass that is enough

    TANDEM_MEMBER bool operator()(std::uint64_t count, double mass) const {
        return count >= limit || mass >= wanted;
    }
    // At the end of the descent, where all ties weigh the same: how many of them stay, one at least.
    TANDEM_MEMBER std::uint64_t kept(const SamplingPlace& place) const {
        const double weight = static_cast<double>(float_of(place.bits));
        std::uint64_t most = limit - place.above;
        most = most < place.ties ? most : place.ties;
        const double guess = ceil((wanted - place.mass) / weight);
        std::uint64_t kept =
            guess < static_cast<double>(most) ? (guess > 1.0 ? static_cast<std::uint64_t>(guess) : 1) : most;
        while (kept > 1 && place.mass + static_cast<double>(kept - 1) * weight >= wanted) --kept;
        while (kept < most && place.mass + static_cast<double>(kept) * weight < wanted) ++kept;
        return kept;
    }
};

// The weight at which the mass passes `at`.
struct SamplingPick {
    double at;

    TANDEM_MEMBER bool operator()(std::uint64_t, double mass) const { return mass > at; }
    // At the end of the descent: which of the ties, by id.
    TANDEM_MEMBER std::uint64_t tie(const SamplingPlace& place) const {
        const double weight = static_cast<double>(float_of(place.bits));
        const double guess = floor((at - place.mass) / weight);
        const double last = static_cast<double>(place.ties - 1);
        auto tie = static_cast<std::uint64_t>(guess < 0.0 ? 0.0 : (guess < last ? guess : last));
        while (tie > 0 && place.mass + static_cast<double>(tie) * weight > at) --tie;
        while (tie + 1 < place.ties && place.mass + static_cast<double>(tie + 1) * weight <= at) ++tie;
        return tie;
    }
};

}  // namespace tandem::ops::shared
