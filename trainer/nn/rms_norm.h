// RMSNorm over the last dim: of hidden states, or of each head's query and key (qk-norm).
#pragma once

#include "trainer/nn/compute.h"
#include "trainer/nn/parameter.h"

namespace tandem::trainer {

class RmsNorm {
  public:
    struct Saved {
        Tensor x;
        Tensor rstd;  // one a row
    };

    RmsNorm(Parameter& weight, float eps) : weight_(&weight), eps_(eps) {}  // [dim]

    // y like x, or written to `y` when given.
    Tensor forward(const Compute& compute, const Tensor& x, Saved& saved, Tensor y = {}) const;
    // dx = or += .
    void backward(const Compute& compute, const Tensor& dy, const Saved& saved, Tensor dx,
                  bool accumulate_dx) const;

  private:
    Parameter* weight_;
    float eps_;
};

}  // namespace tandem::trainer
