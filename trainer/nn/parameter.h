// A parameter as the modules see it: this rank's part of the tp axis's cut, the whole one where nothing is cut. The tensors
// exist only while fsdp keeps them unsharded.
#pragma once

#include "common/model/parameters.h"
#include "common/tensor/tensor.h"
#include "trainer/nn/gradient.h"

namespace tandem::trainer {

struct Parameter : model::ParameterSpec {
    Shape value_shape;
    Tensor value;   // compute dtype; valid between unshard and reshard of its group
    Gradient grad;  // backward writes or adds to it; valid between begin_gradients and after_backward
};

}  // namespace tandem::trainer
