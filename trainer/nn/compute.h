// Arguments of every module's passes: the stream, the dtype of activations, and the rows' positions.
#pragma once

#include <cstdint>
#include <span>

#include "common/device/stream.h"
#include "common/tensor/tensor.h"
#include "trainer/context/context_parallel.h"
#include "trainer/tensor_parallel/tensor_parallel.h"

namespace tandem::trainer {

struct Compute {
    Stream& stream;
    DType dtype;
    ContextParallel& context;
    const TensorParallel& tensor;
    std::span<const std::int32_t> positions;  // of this rank's rows
};

inline Tensor empty_activation(const Compute& compute, Shape shape, DType dtype) {
    return Tensor::empty(compute.stream, std::move(shape), dtype, "activations");
}

// One that the ranks of the tp axis will sum or gather, and so read in place.
inline Tensor empty_terms(const Compute& compute, Shape shape, DType dtype) {
    if (compute.tensor.size() == 1) return empty_activation(compute, std::move(shape), dtype);
    return Tensor::empty(std::move(shape), dtype, "activations", compute.tensor.memory(compute.stream));
}

}  // namespace tandem::trainer
