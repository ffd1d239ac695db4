// The machine's speed of light for a sync: the best copy of the same bytes (non-temporal stores, no checksum,
// no cast), by as many ranks at once as copy in the sync, at most one for each core.
#pragma once

#include "common/comm/communicator.h"
#include "common/device/memory.h"

namespace tandem::sync {

class SpeedOfLight {
  public:
    SpeedOfLight(comm::Communicator& world, std::size_t bytes);  // allocates and touches what it copies
    double measure_ms();                                         // collective; first start to last end
    int copiers() const { return copiers_; }

  private:
    comm::Communicator& world_;
    int copiers_;
    Buffer from_;
    Buffer to_;
};

}  // namespace tandem::sync
