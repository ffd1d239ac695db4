// Advantages from rewards, as pure functions over plain lists: of completions in groups of one prompt, and of
// the steps of one completion. Sums are fp64.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace tandem::trainer {

// The first three take rewards of consecutive groups of `group_size`, and throw InvalidArgument when the
// groups do not fill up. A group whose rewards are all equal gives exactly 0.

// GRPO (Shao et al. 2024, section 4.1.2): (r - mean) / (std + 1e-6) with the unbiased std of the group.
std::vector<float> group_advantages(std::span<const float> rewards, std::int64_t group_size);
// Dr. GRPO (Liu et al. 2025, section 3.1): r - mean.
std::vector<float> centered_rewards(std::span<const float> rewards, std::int64_t group_size);
// RLOO (Ahmadian et al. 2024, eq. 9): r - mean of the group's others = (r - mean) n / (n - 1).
std::vector<float> leave_one_out(std::span<const float> rewards, std::int64_t group_size);

// GAE (Schulman et al. 2015, eq. 16) over the T steps of one completion, which ends there (V_T = 0):
//   delta_t = r_t + gamma V_{t+1} - V_t,  A_t = delta_t + gamma lambda A_{t+1},  return_t = A_t + V_t
struct Gae {
    std::vector<float> advantages;
    std::vector<float> returns;
};
Gae generalised_advantages(std::span<const float> rewards, std::span<const float> values, double gamma,
                           double lambda);

// G_t = r_t + gamma G_{t+1} (REINFORCE++, Hu 2025).
std::vector<float> discounted_returns(std::span<const float> rewards, double gamma);

// values := (values - mean) / sqrt(variance + 1e-8), over all of them, with the unbiased variance.
void whiten(std::span<float> values);

}  // namespace tandem::trainer
