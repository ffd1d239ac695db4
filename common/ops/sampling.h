// Chooses tokens from rows of logits: the likeliest, or one drawn with the caller's random number.
#pragma once

#include <cstdint>
#include <span>

#include "common/device/stream.h"
#include "common/ops/backends.h"
#include "common/tensor/tensor.h"

namespace tandem::ops {

// How one token is chosen. Greedy (temperature below 1e-6, or top_k 1): the likeliest token, the lowest id
// among equals. Otherwise: the token at which the cumulative probability of softmax(logits / temperature),
// restricted as SGLang does by top_k, top_p (the fewest tokens that reach it) and min_p, all judged on the
// unrestricted probabilities, passes `uniform`. Unrestricted, tokens are walked by id; restricted, from the
// likeliest on.
struct Sampling {
    std::int32_t row = 0;  // of the logits; several may take the same
    float temperature = 1.0f;
    std::int32_t top_k = -1;  // below 1: off
    float top_p = 1.0f;
    float min_p = 0.0f;    // in [0, 1]; tokens less likely than min_p times the likeliest are out
    double uniform = 0.0;  // in [0, 1)
    // Whether the log-probability is wanted: of softmax(logits / temperature) over the whole vocabulary; of a
    // greedy choice with temperature 1.
    bool logprob = false;

    bool zero_temperature() const { return temperature < 1e-6f; }
    bool greedy() const { return zero_temperature() || top_k == 1; }
    bool restricted() const { return !(top_k < 0 && top_p >= 1.0f && min_p <= 0.0f); }
    float logprob_temperature() const { return zero_temperature() ? 1.0f : temperature; }
};

// The choice from a row that has NaN or +inf among its logits, or nothing but -inf. (A greedy choice ignores
// a NaN that is not the first logit.)
inline constexpr std::int32_t kNoToken = -1;

// From one row in host memory; `row` is not read.
std::int32_t sample_token(std::span<const float> logits, const Sampling& sampling);

// tokens[i] and, where samples[i].logprob says so, logprobs[i], from logits [rows, vocab] float32. Both are
// written when the stream is synchronized past the call; logprobs may be empty if no sample wants one. On a
// GPU the logits stay there, and a token differs from the CPU's where rounding moves a boundary past
// `uniform`.
void sample_tokens(Stream& stream, const Tensor& logits, std::span<const Sampling> samples,
                   std::span<std::int32_t> tokens, std::span<float> logprobs);

TANDEM_BACKENDS(sample_tokens)

}  // namespace tandem::ops
