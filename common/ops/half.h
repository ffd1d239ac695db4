// Between float16 and the dtypes that are computed in: what a copy casts, and what float16 cannot hold.
#pragma once

#include <cstdint>

#include "common/tensor/tensor.h"

namespace tandem::ops {

// Whether batched_copy takes elements of `from` for elements of `to`: of one dtype, or float32, bfloat16 and
// float16 among each other.
bool copy_casts(DType from, DType to);

// The index of the first element that is finite and would be infinite as float16 (65520 and more); -1: there
// is none. values: of the CPU, float32 or bfloat16; no other dtype has any. Synchronous.
std::int64_t first_beyond_float16(const Tensor& values);

}  // namespace tandem::ops
