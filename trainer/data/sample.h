// One sequence with its targets, of which training batches are made. Plain data.
#pragma once

#include <cstdint>
#include <vector>

namespace tandem::trainer {

// One sequence. tokens[i] predicts tokens[i + 1]; a target counts where target_mask[i + 1] is 1 (the mask has
// the length of tokens; mask[0] is ignored). The float vectors are per token too, read where the mask is 1;
// empty = zeros, or an InvalidArgument where a loss cannot do without them.
struct Sample {
    std::vector<std::int32_t> tokens;
    std::vector<std::uint8_t> target_mask;
    std::vector<float> advantages = {};
    std::vector<float> old_logprobs = {};        // by the policy before the first update
    std::vector<float> rollout_logprobs = {};    // by the engine that sampled
    std::vector<float> reference_logprobs = {};  // by the reference model
    std::vector<float> values = {};              // of the value head before the first update
    std::vector<float> returns = {};             // targets of the value head
};

}  // namespace tandem::trainer
