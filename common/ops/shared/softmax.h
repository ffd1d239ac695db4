// Softmax over values that come in pieces (Milakov & Gimelshein, "Online normalizer calculation for
// softmax"): a piece's largest value, and with z = (x - max) / temperature the sums of e^z and of e^z z, for
// the entropy.
#pragma once

#include "common/ops/shared/exp.h"

namespace tandem::ops::shared {

inline constexpr float kLowest = -3.402823466e38f;  // stands for no value yet: differences stay finite

struct SoftmaxSums {
    float max = kLowest;
    float sum = 0.0f;
    float weighted = 0.0f;
};

TANDEM_HOST_DEVICE void take(SoftmaxSums& sums, float x, float inverse_temperature) {
    const float z = (x - sums.max) * inverse_temperature;
    const float e = fast_exp(z);
    sums.sum += e;
    sums.weighted += e > 0.0f ? e * z : 0.0f;  // -inf has no weight
}

// Moves the reference of the sums to `max`, not below their own.
TANDEM_HOST_DEVICE void raise(SoftmaxSums& sums, float max, float inverse_temperature) {
    const float z = (sums.max - max) * inverse_temperature;
    const float e = fast_exp(z);
    // Σ e^(y+z) (y+z) = e^z (Σ e^y y + z Σ e^y), y the exponents before
    sums.weighted = e > 0.0f ? e * (sums.weighted + z * sums.sum) : 0.0f;
    sums.sum *= e;
    sums.max = max;
}

// Symmetric up to rounding; callers merge in a fixed order.
TANDEM_HOST_DEVICE SoftmaxSums merge(SoftmaxSums a, SoftmaxSums b, float inverse_temperature) {
    const float max = a.max > b.max ? a.max : b.max;
    raise(a, max, inverse_temperature);
    raise(b, max, inverse_temperature);
    return {max, a.sum + b.sum, a.weighted + b.weighted};
}

// The gradient of a logit: see token_logprobs_backward. factor and spread are the row's dlogprob and dentropy
// over the temperature.
TANDEM_HOST_DEVICE float logit_gradient(float logit, float inverse_temperature, float lse, float factor,
                                        float spread, float entropy) {
    const float logp = logit * inverse_temperature - lse;
    const float p = fast_exp(logp);
    // A logit of -inf has no weight; a NaN stays one.
    return p == 0.0f ? 0.0f : -p * (factor + spread * (logp + entropy));
}

}  // namespace tandem::ops::shared
