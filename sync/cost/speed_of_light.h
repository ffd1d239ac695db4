// The machine's speed of light for a sync: the best copy of the same bytes (non-temporal stores, no checksum,
// no cast), by as many ranks at once as copy in the sync, at most one for each core. On a GPU: its own copy
// of the same bytes within its memory, by rank 0 alone.
#pragma once

#include <optional>

#include "common/comm/communicator.h"
#include "common/device/export.h"
#include "common/device/memory.h"
#include "common/device/stream.h"

namespace tandem::sync {

class SpeedOfLight {
  public:
    // Allocates and touches what it copies: at most `most_memory` a side and rank, copied over and over where
    // `bytes` are more.
    SpeedOfLight(comm::Communicator& world, std::size_t bytes, Device device = {},
                 std::size_t most_memory = std::size_t{512} << 20);
    double measure_ms();  // collective; first start to last end

  private:
    comm::Communicator& world_;
    std::size_t share_ = 0;  // bytes that this rank copies
    Buffer from_;
    Buffer to_;
    std::optional<Stream> stream_;  // of a GPU
    ExportArena gpu_from_;
    ExportArena gpu_to_;
    Span source_;
    Span target_;
};

}  // namespace tandem::sync
