// Group-normalised advantages (GRPO): how much better a completion did than the others of its prompt.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace tandem::trainer {

// Rewards of consecutive groups of `group_size`. Result: (r - mean) / (std + 1e-6) with the unbiased std of
// the group; 0 for a group whose rewards are all equal (or of one). Throws InvalidArgument when the groups do
// not fill up.
std::vector<float> group_advantages(std::span<const float> rewards, std::int64_t group_size);

}  // namespace tandem::trainer
