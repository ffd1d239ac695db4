// The definition of a quantised weight, element by element from the whole tensor. The quantiser, which works
// in pieces and within the copy, is compared with it.
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
