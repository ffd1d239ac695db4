// A policy's scores of the target tokens of a batch, without learning from them.
#pragma once

#include <vector>

namespace tandem::trainer {

struct ScoreOptions {
    float temperature = 1;   // of softmax(logits / temperature)
    bool entropies = false;  // wanted beside the log-probs
    bool values = false;     // needs a value head
    bool reference = false;  // by the reference model instead of the policy
};

// result[s] has the length of samples[s].tokens, zero where the mask is 0; empty when not wanted. A value is
// that of the state before its token.
struct Scores {
    using PerToken = std::vector<std::vector<float>>;
    PerToken logprobs;
    PerToken entropies;
    PerToken values;
};

}  // namespace tandem::trainer
