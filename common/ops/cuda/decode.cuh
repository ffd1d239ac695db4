// Paged decode with its tables on the device, as a captured graph needs it.
#pragma once

#include <cstdint>

#include "common/ops/cuda/portable.cuh"
#include "common/tensor/tensor.h"

namespace tandem::ops::TANDEM_KERNELS {

struct DecodeTables {
    const std::int32_t* pages = nullptr;    // [batch, width]
    const std::int32_t* lengths = nullptr;  // [batch], none above max_length
    std::int64_t width = 0;
    std::int64_t max_length = 0;
};

void decode(Stream& stream, const Tensor& q, const Tensor& k_cache, const Tensor& v_cache,
            const DecodeTables& tables, float scale, Tensor out);

}  // namespace tandem::ops::TANDEM_KERNELS
