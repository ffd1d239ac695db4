// Rows of float32 or bfloat16 tensors as float32, so that every leaf loop is written once, in fp32.
#pragma once

#include <cstdint>

#include "common/tensor/tensor.h"

namespace tandem::ops::detail {

void widen(const bfloat16* from, float* to, std::int64_t count);
void narrow(const float* from, bfloat16* to, std::int64_t count);  // round to nearest even
void add_into(float* sums, const float* more, std::int64_t count);

// Elements [offset, offset + count) of `tensor` as float32: in place, or widened into `scratch` [count].
inline const float* read_row(const Tensor& tensor, std::int64_t offset, std::int64_t count, float* scratch) {
    if (tensor.dtype() == DType::float32) return reinterpret_cast<const float*>(tensor.raw()) + offset;
    widen(reinterpret_cast<const bfloat16*>(tensor.raw()) + offset, scratch, count);
    return scratch;
}

// Where to write a row: in place, or `scratch`, which finish_row then rounds into the tensor.
inline float* begin_row(const Tensor& tensor, std::int64_t offset, float* scratch) {
    return tensor.dtype() == DType::float32 ? reinterpret_cast<float*>(tensor.raw()) + offset : scratch;
}

inline void finish_row(const Tensor& tensor, std::int64_t offset, std::int64_t count, const float* scratch) {
    if (tensor.dtype() == DType::bfloat16) {
        narrow(scratch, reinterpret_cast<bfloat16*>(tensor.raw()) + offset, count);
    }
}

}  // namespace tandem::ops::detail
