// Small allocations that the three forms of context attention share.
#pragma once

#include "common/comm/communicator.h"
#include "common/ops/attention.h"
#include "common/tensor/tensor.h"

namespace tandem::trainer {

// [heads, rows] float32 for q [rows, heads, head_dim].
inline Tensor empty_row_scalars(const Tensor& q) {
    return Tensor::empty({q.dim(1), q.dim(0)}, DType::float32, "activations", device_pool(q.device()));
}

inline Tensor empty_f32(Stream& stream, const Tensor& like) {
    return Tensor::empty(stream, like.shape(), DType::float32, "activations");
}

inline Tensor attention_delta_of(Stream& stream, const Tensor& dout, const Tensor& out) {
    Tensor delta = empty_row_scalars(out);
    ops::attention_delta(stream, dout, out, delta);
    return delta;
}

}  // namespace tandem::trainer
