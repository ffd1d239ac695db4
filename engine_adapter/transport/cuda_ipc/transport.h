// Buckets through a GPU's memory: the engine opens the allocations that the regions lie in by their handles,
// each once, and copies with a stream of its own.
//
// Order: who writes a region records an event behind what it wrote, and the engine's stream waits for it
// before it reads. Back goes the reply: the engine has compared checksums on the host by then, so its stream
// is past the bucket.
#pragma once

#include "engine_adapter/transport/transport.h"

namespace tandem::engine {

class CudaIpcTransport final : public Transport {
  public:
    using Transport::Transport;
    // Also throws IpcRefused, here or (through the reply) by the engine: what cannot be shared, and why.
    void attach(const std::vector<Region>& regions, const TransferPlan& plan, Deadline deadline) override;
};

}  // namespace tandem::engine
