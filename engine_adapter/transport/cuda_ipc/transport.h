// Buckets through a GPU's memory: the engine opens the allocations that the regions lie in by their handles,
// each once, and copies with a stream of its own.
//
// Order: both sides read a bucket's checksums on the host before they speak of it (the trainer to send them,
// the engine to compare them), so each side's stream is past the bucket when its message leaves, and no event
// has to cross between the processes.
#pragma once

#include "engine_adapter/transport/bucket_requests.h"

namespace tandem::engine {

class CudaIpcTransport final : public BucketRequests {
  public:
    using BucketRequests::BucketRequests;
    // Also throws IpcRefused, here or (through the reply) by the engine: what cannot be shared, and why.
    void stage(const std::vector<Region>& regions, const TransferPlan& plan, Deadline deadline) override;
};

}  // namespace tandem::engine
