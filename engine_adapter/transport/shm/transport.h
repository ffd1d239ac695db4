// Buckets through shared memory: the engine maps the staging arena, a message says which slot is full, the
// reply says that it may be filled again.
#pragma once

#include <memory>
#include <unordered_map>

#include "engine_adapter/transport/shm/connection.h"
#include "engine_adapter/transport/shm/wire.h"
#include "engine_adapter/transport/transport.h"

namespace tandem::engine {

class ShmTransport final : public Transport {
  public:
    // `tensors` is what the engine holds, in its order.
    ShmTransport(std::shared_ptr<Connection> connection, const std::vector<TensorInfo>& tensors);

    const std::string& peer() const override { return connection_->peer(); }
    void stage(const StagingArea& staging, Deadline deadline) override;
    void post(const Bucket& bucket, Deadline deadline) override;
    Poll poll(int index) override;
    double wait(int index, Deadline deadline) override;
    void release() override;

  private:
    std::int64_t request_of(int index) const;

    std::shared_ptr<Connection> connection_;
    std::unordered_map<std::string, std::uint32_t> number_of_;  // tensor name -> index
    std::unordered_map<int, std::int64_t> in_flight_;           // bucket -> request
    std::vector<wire::Entry> packed_;                           // scratch
};

}  // namespace tandem::engine
