// One row of token_logprobs, for this folder.
#pragma once

#include <cstdint>

namespace tandem::ops::cpu {

struct TokenLogprob {
    float logprob, lse, entropy;  // logprob 0 for a negative target
};

TokenLogprob token_logprob(const float* logits, std::int64_t vocab, std::int32_t target,
                           float inverse_temperature);

}  // namespace tandem::ops::cpu
