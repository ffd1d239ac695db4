// SwiGLU feed-forward: down(silu(gate(x)) * up(x)).
#pragma once

#include "trainer/nn/linear.h"

namespace tandem::trainer {

class Mlp {
  public:
    struct Saved {
        Tensor x;
        Tensor gate;
        Tensor up;
    };

    Mlp(Linear gate, Linear up, Linear down) : gate_(gate), up_(up), down_(down) {}

    Tensor forward(const Compute& compute, const Tensor& x, Saved& saved) const;
    // Fills saved: the part of the forward that the backward needs.
    void expand(const Compute& compute, const Tensor& x, Saved& saved) const;
    Tensor backward(const Compute& compute, const Tensor& dy, const Saved& saved) const;  // dx

  private:
    struct Steps;

    Linear gate_;
    Linear up_;
    Linear down_;
};

}  // namespace tandem::trainer
