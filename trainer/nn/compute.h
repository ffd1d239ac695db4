// Arguments of every module's passes: the stream, the dtype of activations, and the rows' positions.
#pragma once

#include <cstdint>
#include <span>

#include "common/device/stream.h"
#include "common/tensor/tensor.h"
#include "trainer/context/context_parallel.h"
#include "trainer/nn/later_gradients.h"
#include "trainer/tensor_parallel/tensor_parallel.h"

namespace tandem::trainer {

struct Compute {
    Stream& stream;
    DType dtype;
    ContextParallel& context;
    const TensorParallel& tensor;
    std::span<const std::int32_t> positions;  // of this rank's rows
    LaterGradients* later = nullptr;          // where weights' gradients wait; null: they are made at once
};

inline Tensor empty_activation(const Compute& compute, Shape shape, DType dtype) {
    return Tensor::empty(compute.stream, std::move(shape), dtype, "activations");
}

// One that the ranks of the tp axis will sum or gather, and so read in place.
inline Tensor empty_terms(const Compute& compute, Shape shape, DType dtype) {
    if (compute.tensor.size() == 1) return empty_activation(compute, std::move(shape), dtype);
    return Tensor::empty(std::move(shape), dtype, "activations", compute.tensor.memory(compute.stream));
}

// Makes a weight's gradient, now or when its turn comes.
template <typename Work>
void add_gradient(const Compute& compute, const Work& work) {
    compute.later != nullptr ? compute.later->add(work) : work();
}

}  // namespace tandem::trainer
