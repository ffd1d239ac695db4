// The global batch cut into packs: first over the data-parallel ranks, then into micro-batches of a bounded
// number of tokens. Pure and deterministic: every rank computes the whole plan from the lengths alone and
// takes its part.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace tandem::trainer {

struct Pack {
    std::vector<int> samples;  // ascending indices into the batch; empty packs keep the ranks' counts equal
    std::int64_t tokens = 0;
};

// From the number of packs that are needed to the one that is made, no smaller; none: what is needed.
using PackCount = std::function<int(int needed)>;

// plan[dp rank][micro-batch]. Samples are spread over dp evenly by tokens (Karmarkar-Karp), then over as few
// packs of at most `capacity` tokens as first-fit-decreasing finds, evenly where that still fits. Every dp
// rank gets the same number of packs, at least one. Throws InvalidArgument naming the sample when one is
// empty or longer than capacity.
std::vector<std::vector<Pack>> plan_packs(std::span<const std::int64_t> lengths, int dp,
                                          std::int64_t capacity, const PackCount& admitted = {});

// The same with a fixed number of samples a pack (the last ones may have fewer): samples are dealt over dp
// and then over each rank's ceil(share / samples_per_pack) packs, or as many as are made of those, longest first, forth and back, so that
// counts differ by one at most. Throws InvalidArgument also when such a pack is more than `capacity` tokens.
std::vector<std::vector<Pack>> plan_fixed_packs(std::span<const std::int64_t> lengths, int dp,
                                                std::int64_t samples_per_pack, std::int64_t capacity,
                                                const PackCount& admitted = {});

// Throws InvalidArgument naming the sample when one is empty or longer than `capacity`.
void check_pack_lengths(std::span<const std::int64_t> lengths, std::int64_t capacity);

// Largest differencing method: indices of `sizes` in `parts` sets of nearly equal sums, each ascending.
std::vector<std::vector<int>> karmarkar_karp(std::span<const std::int64_t> sizes, int parts);

// Indices of `sizes` in bins of at most `capacity`, largest first, each into the first bin with enough space.
std::vector<std::vector<int>> first_fit_decreasing(std::span<const std::int64_t> sizes,
                                                   std::int64_t capacity);

}  // namespace tandem::trainer
