// y = x W^T, or x W^T + b.
#pragma once

#include "trainer/nn/compute.h"
#include "trainer/nn/parameter.h"

namespace tandem::trainer {

class Linear {
  public:
    // weight [out, in], bias [out] or null. adds_bias false: another rank of the tp axis, which sums what this one makes,
    // adds it; the gradient is whole on each.
    explicit Linear(Parameter& weight, Parameter* bias = nullptr, bool adds_bias = true)
        : weight_(&weight), bias_(bias), adds_bias_(adds_bias) {}

    // x [rows, in] -> [rows, out], in `y` when given. The caller keeps x for the backward.
    Tensor forward(const Compute& compute, const Tensor& x, Tensor y = {}) const;
    // dx = or += dy W; the weight's gradient grows by dy^T x, the bias's by the sum of dy's rows, which with Compute::later must
    // keep their values until then.
    void backward(const Compute& compute, const Tensor& dy, const Tensor& x, Tensor dx,
                  bool accumulate_dx = false) const;
    std::int64_t out_features() const { return weight_->value_shape[0]; }

  private:
    Parameter* weight_;
    Parameter* bias_;
    bool adds_bias_;
};

}  // namespace tandem::trainer
