// Barriers of some of a block's threads, for kernels that run on the host: common/ops/cuda/hopper.cuh.
#pragma once

#include <cstdint>

#include "tests/support/kernels_on_host.h"

namespace fibers {

TANDEM_CALLED void meet(unsigned barrier, unsigned threads);
TANDEM_CALLED void arrive_at(unsigned barrier, unsigned threads);

TANDEM_CALLED void init_mbarrier(std::uintptr_t barrier, unsigned arrivals);
TANDEM_CALLED void arrive(std::uintptr_t mbarrier);
TANDEM_CALLED void arrive_expecting(std::uintptr_t mbarrier, unsigned bytes);
TANDEM_CALLED void wait_for(std::uintptr_t mbarrier, unsigned parity);
TANDEM_CALLED void fence_proxies();

}  // namespace fibers
