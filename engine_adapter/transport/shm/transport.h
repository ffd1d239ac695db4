// Buckets through shared memory: the engine maps the regions by the file descriptors that travel with attach. With a message
// for each, or one for all of them (engine_adapter/relay.h).
#pragma once

#include <exception>

#include "engine_adapter/transport/transport.h"

namespace tandem::engine {

class ShmTransport final : public Transport, private BucketRelay {
  public:
    using Transport::Transport;
    void attach(const std::vector<Region>& regions, const TransferPlan& plan, Deadline deadline) override;
    BucketRelay* relay() override { return relays_ ? this : nullptr; }
    void forget_in_flight() override;

  private:
    void take(const Relay& relay, Deadline deadline) override;
    void take_probe(const Relay& relay, const RelayProbe& probe, Deadline deadline) override;
    bool answered() override;
    double wait_taken(Deadline deadline) override;
    void start(const Relay& relay, nlohmann::json header, Deadline deadline);
    bool relays_ = false;
    std::int64_t relay_ = 0;   // the request; 0: none in flight
    std::exception_ptr gone_;  // why its answer will not come
};

}  // namespace tandem::engine
