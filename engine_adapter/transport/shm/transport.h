// Buckets through shared memory: the engine maps the regions by the file descriptors that travel with attach.
#pragma once

#include "engine_adapter/transport/transport.h"

namespace tandem::engine {

class ShmTransport final : public Transport {
  public:
    using Transport::Transport;
    void attach(const std::vector<Region>& regions, const TransferPlan& plan, Deadline deadline) override;
};

}  // namespace tandem::engine
