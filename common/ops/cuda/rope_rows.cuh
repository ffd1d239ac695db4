// A rope table as kernels read it.
#pragma once

#include <cstdint>
#include <memory>

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

// Their memory lives as long as this object: hold it until the kernels that read it are launched (freeing it
// waits for the device). Another thread may grow the table meanwhile, which drops the table's own reference.
struct HeldRopeRows {
    RopeRows rows;
    std::shared_ptr<const void> memory;
};

// Rows of positions [0, positions), or as many as there may be, on the stream's device. They are copied there
// once; that has happened when this returns.
HeldRopeRows rope_rows(Stream& stream, const RopeTable& table, std::int64_t positions);

}  // namespace tandem::ops::TANDEM_KERNELS
