#include "trainer/optim/adamw.h"

#include "common/ops/elementwise.h"

namespace tandem::trainer {

AdamW::AdamW(std::int64_t numel, float beta1, float beta2, float eps, float weight_decay)
    : exp_avg_(Tensor::zeros({numel}, DType::float32, "optimizer")),
      exp_avg_sq_(Tensor::zeros({numel}, DType::float32, "optimizer")) {
    params_.beta1 = beta1;
    params_.beta2 = beta2;
    params_.eps = eps;
    params_.weight_decay = weight_decay;
}

void AdamW::step(Stream& stream, const Tensor& params, const Tensor& grads, double lr, float grad_scale) {
    params_.lr = static_cast<float>(lr);
    params_.grad_scale = grad_scale;
    ops::adamw(stream, params, grads, exp_avg_, exp_avg_sq_, params_);
    ++params_.step;
}

void AdamW::reset(Stream& stream) {
    ops::fill_zero(stream, exp_avg_);
    ops::fill_zero(stream, exp_avg_sq_);
    params_.step = 1;
}

}  // namespace tandem::trainer
