// Bulk copies to shared memory, for kernels that run on the host: common/ops/cuda/hopper.cuh.
#pragma once

#include <array>
#include <cstdint>

#include "tests/support/kernels_on_host.h"

namespace fibers {

// Whether ops take the device for one of compute capability 9.0; a test says so for those that follow.
bool as_hopper();
void set_as_hopper(bool yes);

// What a CUtensorMap of two-byte elements says. Fastest dimension first; strides of the other two, in bytes.
struct TensorMap {
    const std::byte* base = nullptr;
    std::array<std::int64_t, 3> size{};
    std::array<std::int64_t, 2> strides{};
    std::array<int, 3> box{};
    int swizzle = 0;  // bytes over which 16-byte chunks are swizzled: 0, 32, 64 or 128
    std::int64_t box_bytes() const { return std::int64_t{2} * box[0] * box[1] * box[2]; }
};
// Throws where cuTensorMapEncodeTiled would refuse.
TensorMap tensor_map(const void* base, std::array<std::int64_t, 3> size, std::array<std::int64_t, 2> strides,
                     std::array<int, 3> box, int swizzle);

TANDEM_CALLED void bring_box(std::uintptr_t to, const TensorMap& map, std::uintptr_t mbarrier, int x, int y,
                             int z);
TANDEM_CALLED void bring_bulk(std::uintptr_t to, const void* from, unsigned bytes, std::uintptr_t mbarrier);

}  // namespace fibers
