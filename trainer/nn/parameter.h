// A parameter as the modules see it: full tensors, which exist only while fsdp keeps them unsharded.
#pragma once

#include "common/model/parameters.h"
#include "common/tensor/tensor.h"

namespace tandem::trainer {

struct Parameter : model::ParameterSpec {
    Tensor value;  // compute dtype; valid between unshard and reshard of its group
    Tensor grad;   // float32; backward adds to it; valid between begin_gradients and reduce_gradients
};

}  // namespace tandem::trainer
