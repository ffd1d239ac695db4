// What a quantised weight is, element by element from the whole tensor: what the sync's way, in pieces and
// fused into the copy, is held against.
#pragma once

#include "common/tensor/tensor.h"

namespace tandem::sync {

struct NaiveQuantized {
    Tensor values;  // of the weight's shape
    Tensor scales;  // as sync/codec/scales.h says
};

// `full`: a whole weight of two dims, float32 or bfloat16. NaN and infinity are not looked for.
NaiveQuantized quantize_naively(const Tensor& full, DType to);

}  // namespace tandem::sync
