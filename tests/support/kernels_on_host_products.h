// Products of warpgroups (wgmma), for kernels that run on the host: common/ops/cuda/warpgroup.cuh.
#pragma once

#include <cstdint>

#include "tests/support/kernels_on_host.h"

namespace fibers {

// Where a tile lies, as the hardware has it: addresses are counted from a multiple of 1024 below shared memory.
TANDEM_CALLED std::uint64_t tile_at(std::uintptr_t address, unsigned leading, unsigned stride,
                                    unsigned swizzle);

TANDEM_CALLED void fence_products();
// d [64, columns] (+)= a b, 16 terms a sum. `a`: four registers of this thread, or null and `tile_a`.
TANDEM_CALLED void issue_product(float* d, int columns, const std::uint32_t* a, std::uint64_t tile_a,
                                 std::uint64_t tile_b, bool transposed_b, bool add);
TANDEM_CALLED void commit_products();
TANDEM_CALLED void wait_for_products(int pending);

}  // namespace fibers
