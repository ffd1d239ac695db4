// y = x W^T, without bias.
#pragma once

#include "trainer/nn/compute.h"
#include "trainer/nn/parameter.h"

namespace tandem::trainer {

class Linear {
  public:
    explicit Linear(Parameter& weight) : weight_(&weight) {}  // [out, in]

    // x [rows, in] -> [rows, out], in `y` when given. The caller keeps x for the backward.
    Tensor forward(const Compute& compute, const Tensor& x, Tensor y = {}) const;
    // dx = or += dy W; the weight's gradient grows by dy^T x.
    void backward(const Compute& compute, const Tensor& dy, const Tensor& x, Tensor dx,
                  bool accumulate_dx = false) const;
    std::int64_t out_features() const { return weight_->shape[0]; }
    std::int64_t in_features() const { return weight_->shape[1]; }

  private:
    Parameter* weight_;
};

}  // namespace tandem::trainer
