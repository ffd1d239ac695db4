// AdamW with fp32 state over one rank's flat shard. Padding inside the shard has zero weight and zero
// gradient, and stays zero.
#pragma once

#include <cstdint>

#include "common/ops/adamw.h"
#include "common/tensor/tensor.h"

namespace tandem::trainer {

class AdamW {
  public:
    AdamW(std::int64_t numel, float beta1, float beta2, float eps, float weight_decay);

    // One step, with gradients multiplied by grad_scale first.
    void step(Stream& stream, const Tensor& params, const Tensor& grads, double lr, float grad_scale);
    void reset(Stream& stream);  // moments and step count to zero
    std::int64_t steps() const { return params_.step - 1; }
    // For checkpoints: the moments themselves, and the count that they belong to.
    const Tensor& exp_avg() const { return exp_avg_; }
    const Tensor& exp_avg_sq() const { return exp_avg_sq_; }
    void set_steps(std::int64_t steps) { params_.step = steps + 1; }

  private:
    ops::AdamWParams params_;
    Tensor exp_avg_;
    Tensor exp_avg_sq_;
};

}  // namespace tandem::trainer
