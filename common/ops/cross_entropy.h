// Log-probabilities of given tokens and their gradient, row by row of a block of logits. The callers cut the
// tokens into chunks, so the full logits never exist at once.
#pragma once

#include <cstdint>
#include <span>

#include "common/device/stream.h"
#include "common/ops/backends.h"
#include "common/tensor/tensor.h"

namespace tandem::ops {

// The row's target is in another rank's part of the vocabulary, where the logits are a part of the columns.
inline constexpr std::int32_t kElsewhere = -2;

// logits [rows, vocab] float32.
//   logprobs[i] = logits[i][targets[i]] / temperature - logsumexp(logits[i] / temperature)
// and 0 for target -1 (none) and kElsewhere. entropies may be empty. lse [rows] out, for the backward. A row's
// values do not depend on the other rows. A row of no columns, or of -inf alone, has lse -inf and entropy 0.
// The parts r of a cut vocabulary make the whole's lse = log Σ_r exp(lse_r), its log-probability
// logprob_r + lse_r - lse of the part with the target, and its entropy
// lse - Σ_r exp(lse_r - lse) (lse_r - entropy_r).
void token_logprobs(Stream& stream, const Tensor& logits, std::span<const std::int32_t> targets,
                    float temperature, std::span<float> logprobs, std::span<float> lse,
                    std::span<float> entropies = {});

// In place: logits := dloss/dlogits. With p = softmax(logits[i] / temperature) and H its entropy,
//   dlogits[j] = (  dlogprobs[i] (onehot(targets[i])[j] - p[j])
//                 - dentropies[i] p[j] (log p[j] + H)           ) / temperature
// (dH/dlogit_j = -p_j (log p_j + H) / temperature). entropies and dentropies hold every row, or nothing. A
// row without a target (-1) gets zeros; one whose target is kElsewhere has no onehot. Of a cut vocabulary, lse
// and entropies are the whole's.
void token_logprobs_backward(Stream& stream, Tensor logits, std::span<const std::int32_t> targets,
                             float temperature, std::span<const float> lse, std::span<const float> dlogprobs,
                             std::span<const float> entropies = {}, std::span<const float> dentropies = {});

TANDEM_BACKENDS(token_logprobs)
TANDEM_BACKENDS(token_logprobs_backward)

}  // namespace tandem::ops
