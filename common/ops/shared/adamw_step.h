// One element's step of AdamW; see common/ops/adamw.h for the formulas.
#pragma once

#include <cmath>

#include "common/ops/adamw.h"
#include "common/ops/shared/host_device.h"
#include "common/ops/shared/random.h"

namespace tandem::ops::shared {

struct AdamWFactors {
    float decay, beta1, beta2, step_size, inverse_root2, eps, grad_scale;
};

inline AdamWFactors adamw_factors(const AdamWParams& params) {
    const auto t = static_cast<double>(params.step);
    const double lr = static_cast<double>(params.lr);
    const double correction1 = 1.0 - std::pow(static_cast<double>(params.beta1), t);
    const double correction2 = 1.0 - std::pow(static_cast<double>(params.beta2), t);
    return {.decay = static_cast<float>(1.0 - lr * static_cast<double>(params.weight_decay)),
            .beta1 = params.beta1,
            .beta2 = params.beta2,
            .step_size = static_cast<float>(lr / correction1),
            .inverse_root2 = static_cast<float>(1.0 / std::sqrt(correction2)),
            .eps = params.eps,
            .grad_scale = params.grad_scale};
}

TANDEM_HOST_DEVICE void adamw_step(float& p, float g, float& m, float& v, const AdamWFactors& f) {
    const float grad = g * f.grad_scale;
    const float mean = f.beta1 * m + (1.0f - f.beta1) * grad;
    const float square = f.beta2 * v + (1.0f - f.beta2) * (grad * grad);
    m = mean;
    v = square;
    p = p * f.decay - f.step_size * mean / (__builtin_sqrtf(square) * f.inverse_root2 + f.eps);
}

}  // namespace tandem::ops::shared
