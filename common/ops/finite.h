// Looks for infinities and NaN in a tensor.
#pragma once

#include <cstdint>

#include "common/device/stream.h"
#include "common/ops/backends.h"
#include "common/tensor/tensor.h"

namespace tandem::ops {

struct NonFinite {
    std::int64_t count = 0;   // elements
    std::int64_t first = -1;  // position of the first; -1: there is none
    friend bool operator==(const NonFinite&, const NonFinite&) = default;
};

// float32, bfloat16, float16 and float8_e4m3fn (which has NaN alone); all elements of other dtypes are finite.
// Waits for the stream.
NonFinite find_non_finite(Stream& stream, const Tensor& values);
NonFinite find_non_finite(const Tensor& values);  // in host memory

TANDEM_BACKENDS(find_non_finite)

}  // namespace tandem::ops
