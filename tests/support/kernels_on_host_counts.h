// What kernels on the host have done, in this thread of the host.
#pragma once

#include <cstdint>

namespace fibers {

struct Counts {
    std::int64_t products = 0;        // of a warp, m16n8k16
    std::int64_t group_products = 0;  // of a warp of a warpgroup, wgmma
    std::int64_t matrix_loads = 0;    // of a warp, four matrices
    std::int64_t bank_conflicts = 0;  // turns that these took beyond one a matrix
    std::int64_t copies = 0;          // of 16 bytes, ahead
    std::int64_t arrivals_left = 0;   // at named barriers, when blocks ended
    std::int64_t launches = 0;
    // Bytes of global memory, by instrumented kernels' loads and stores (kernel_races.h) and their copies ahead.
    std::int64_t bytes_read = 0;
    std::int64_t bytes_written = 0;
};
extern thread_local constinit Counts counts;  // for the instructions

Counts take_counts();  // since the last call, of all launches

}  // namespace fibers
