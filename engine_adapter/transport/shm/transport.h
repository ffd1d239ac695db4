// Buckets through shared memory: the engine maps the regions by the file descriptors that travel with attach.
#pragma once

#include "engine_adapter/transport/bucket_requests.h"

namespace tandem::engine {

class ShmTransport final : public BucketRequests {
  public:
    using BucketRequests::BucketRequests;
    void stage(const std::vector<Region>& regions, const TransferPlan& plan, Deadline deadline) override;
};

}  // namespace tandem::engine
