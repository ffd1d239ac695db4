// Chooses one token from one row of logits.
#pragma once

#include <cstdint>
#include <span>

#include "engine_adapter/embedded/request.h"

namespace tandem::engine {

// Greedy: the likeliest token, the lowest id among equals. Otherwise: the token at which the cumulative
// probability of softmax(logits / temperature), restricted as SGLang does by top_k, top_p (the fewest tokens
// that reach it) and min_p, all judged on the unrestricted probabilities, passes `uniform` in [0, 1). Throws
// Error when the logits are not finite.
std::int32_t sample_token(std::span<const float> logits, const SamplingParams& params, double uniform);

}  // namespace tandem::engine
