// AdamW on the CPU: one pass over the flat shard.
#include "common/ops/adamw.h"

#include <cmath>

#include "common/ops/backends.h"
#include "common/ops/cpu/check.h"
#include "common/ops/cpu/simd.h"

namespace tandem::ops::cpu {
namespace {

struct Factors {
    float decay, beta1, beta2, step_size, inverse_root2, eps, grad_scale;
};

TANDEM_CLONES void adamw_loop(float* __restrict p, const float* __restrict g, float* __restrict m,
                              float* __restrict v, std::int64_t count, const Factors& factors) {
    const Factors f = factors;
    for (std::int64_t i = 0; i < count; ++i) {
        const float grad = g[i] * f.grad_scale;
        const float mean = f.beta1 * m[i] + (1.0f - f.beta1) * grad;
        const float square = f.beta2 * v[i] + (1.0f - f.beta2) * (grad * grad);
        m[i] = mean;
        v[i] = square;
        p[i] = p[i] * f.decay - f.step_size * mean / (__builtin_sqrtf(square) * f.inverse_root2 + f.eps);
    }
}

TANDEM_CLONES double square_sum_loop(const float* x, std::int64_t count) {
    double lanes[8] = {};
    std::int64_t i = 0;
    for (; i + 8 <= count; i += 8) {
        for (int l = 0; l < 8; ++l) lanes[l] += static_cast<double>(x[i + l]) * static_cast<double>(x[i + l]);
    }
    for (int l = 0; i + l < count; ++l)
        lanes[l] += static_cast<double>(x[i + l]) * static_cast<double>(x[i + l]);
    return ((lanes[0] + lanes[4]) + (lanes[2] + lanes[6])) + ((lanes[1] + lanes[5]) + (lanes[3] + lanes[7]));
}

}  // namespace

void adamw(Stream& stream, Tensor param, const Tensor& grad, Tensor exp_avg, Tensor exp_avg_sq,
           const AdamWParams& params) {
    for (const Tensor* tensor :
         {static_cast<const Tensor*>(&param), &grad, static_cast<const Tensor*>(&exp_avg),
          static_cast<const Tensor*>(&exp_avg_sq)}) {
        detail::check_dtype("adamw", "param, grad or state", *tensor, DType::float32);
        require(tensor->numel() == param.numel(), "adamw: shapes {} and {} differ in size",
                to_string(tensor->shape()), to_string(param.shape()));
    }
    require(params.step >= 1, "adamw: step {} must be at least 1", params.step);
    stream.enqueue([=] {
        const double t = static_cast<double>(params.step);
        const double correction1 = 1.0 - std::pow(static_cast<double>(params.beta1), t);
        const double correction2 = 1.0 - std::pow(static_cast<double>(params.beta2), t);
        const Factors factors{.decay = static_cast<float>(1.0 - static_cast<double>(params.lr) *
                                                                    static_cast<double>(params.weight_decay)),
                              .beta1 = params.beta1,
                              .beta2 = params.beta2,
                              .step_size = static_cast<float>(static_cast<double>(params.lr) / correction1),
                              .inverse_root2 = static_cast<float>(1.0 / std::sqrt(correction2)),
                              .eps = params.eps,
                              .grad_scale = params.grad_scale};
        adamw_loop(param.data<float>(), grad.data<float>(), exp_avg.data<float>(), exp_avg_sq.data<float>(),
                   param.numel(), factors);
    });
}

double sum_of_squares(Stream& stream, const Tensor& values) {
    detail::check_dtype("sum_of_squares", "values", values, DType::float32);
    double sum = 0.0;
    stream.enqueue([&sum, values] { sum = square_sum_loop(values.data<float>(), values.numel()); });
    stream.synchronize();
    return sum;
}

}  // namespace tandem::ops::cpu
