// Buckets through shared memory: the engine maps the regions, a message says which bucket is ready, the reply
// says that its memory may be written again.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "engine_adapter/transport/shm/connection.h"
#include "engine_adapter/transport/transport.h"

namespace tandem::engine {

class ShmTransport final : public Transport {
  public:
    explicit ShmTransport(std::shared_ptr<Connection> connection) : connection_(std::move(connection)) {}

    const std::string& peer() const override { return connection_->peer(); }
    void stage(const std::vector<Region>& regions, const TransferPlan& plan, Deadline deadline) override;
    void post(int bucket, std::span<const ops::Checksum> checksums, Deadline deadline) override;
    void post_delta(int bucket, std::span<const DeltaEntry> entries, Deadline deadline) override;
    Poll poll(int bucket) override;
    double wait(int bucket, Deadline deadline) override;
    void release() override;

    std::size_t transfers() const { return first_.back(); }  // of the staged plan

  private:
    void require_free(int bucket) const;
    std::int64_t request_of(int bucket) const;

    std::shared_ptr<Connection> connection_;
    std::vector<std::uint64_t> first_{0};    // of the staged plan
    std::map<int, std::int64_t> in_flight_;  // bucket -> request
};

}  // namespace tandem::engine
