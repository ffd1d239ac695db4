// Log-probabilities of given tokens and their gradient, row by row of a block of logits. The callers cut the
// tokens into chunks, so the full logits never exist at once.
#pragma once

#include <cstdint>
#include <span>

#include "common/device/stream.h"
#include "common/ops/backends.h"
#include "common/tensor/tensor.h"

namespace tandem::ops {

// logits [rows, vocab] float32.
//   logprobs[i] = logits[i][targets[i]] / temperature - logsumexp(logits[i] / temperature)
// and 0 for target -1. entropies may be empty. lse [rows] out, for the backward. A row's values do not depend
// on the other rows.
void token_logprobs(Stream& stream, const Tensor& logits, std::span<const std::int32_t> targets,
                    float temperature, std::span<float> logprobs, std::span<float> lse,
                    std::span<float> entropies = {});

// In place: logits := dloss/dlogits. With p = softmax(logits[i] / temperature) and H its entropy,
//   dlogits[j] = (  dlogprobs[i] (onehot(targets[i])[j] - p[j])
//                 - dentropies[i] p[j] (log p[j] + H)           ) / temperature
// (dH/dlogit_j = -p_j (log p_j + H) / temperature). entropies and dentropies hold every row, or nothing. A
// row without a target gets zeros.
void token_logprobs_backward(Stream& stream, Tensor logits, std::span<const std::int32_t> targets,
                             float temperature, std::span<const float> lse, std::span<const float> dlogprobs,
                             std::span<const float> entropies = {}, std::span<const float> dentropies = {});

TANDEM_BACKENDS(token_logprobs)
TANDEM_BACKENDS(token_logprobs_backward)

}  // namespace tandem::ops
