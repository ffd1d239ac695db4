// A rope table as kernels read it.
#pragma once

#include <cstdint>

#include "common/device/stream.h"
#include "common/ops/cuda/elements.cuh"
#include "common/ops/rope.h"

namespace tandem::ops::TANDEM_KERNELS {

struct RopeRows {
    Elements values;  // [positions, 2 half] float32: cosines, then sines
    const float* frequencies = nullptr;
    float factor = 1.0f;
    std::int64_t positions = 0;
    std::int64_t half = 0;
};

// Rows of positions [0, positions), or as many as there may be, on the stream's device. They are copied there
// once, in stream order; other streams of the device that use them wait for that.
RopeRows rope_rows(Stream& stream, const RopeTable& table, std::int64_t positions);

}  // namespace tandem::ops::TANDEM_KERNELS
