// What transports share whose engine takes the bytes itself: a message over the receiver's channel says which
// bucket is ready, the reply says that its memory may be written again. They differ in how the engine comes
// to the regions.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "engine_adapter/channel/connection.h"
#include "engine_adapter/transport/transport.h"

namespace tandem::engine {

class BucketRequests : public Transport {
  public:
    explicit BucketRequests(std::shared_ptr<Connection> connection) : connection_(std::move(connection)) {}

    const std::string& peer() const override { return connection_->peer(); }
    void post(int bucket, std::span<const ops::Checksum> checksums, Deadline deadline) override;
    void post_delta(int bucket, std::span<const DeltaEntry> entries, Deadline deadline) override;
    Poll poll(int bucket) override;
    double wait(int bucket, Deadline deadline) override;
    void release() override;

    std::size_t transfers() const { return first_.back(); }  // of the staged plan

  protected:
    // Throws InvalidArgument when buckets are in flight.
    void require_stageable(const TransferPlan& plan) const;
    // Tells the engine of the plan, and of the regions as `header` and `fds` name them.
    void attach(nlohmann::json header, std::span<const int> fds, const TransferPlan& plan, Deadline deadline);

    // The parts of post and wait, for who does more in between.
    void require_postable(int bucket, std::span<const ops::Checksum> checksums) const;
    std::int64_t post_request(nlohmann::json header, int bucket, std::span<const ops::Checksum> checksums,
                              Deadline deadline);  // `header`: fields beside a bucket's own
    std::int64_t request_of(int bucket) const;     // throws InvalidArgument: not in flight
    void drop(int bucket);                         // forgets what is in flight under that number
    bool any_in_flight() const { return !in_flight_.empty(); }
    static std::string phase_of(int bucket);

  private:
    void require_free(int bucket) const;

    std::shared_ptr<Connection> connection_;
    std::vector<std::uint64_t> first_{0};    // of the staged plan
    std::map<int, std::int64_t> in_flight_;  // bucket -> request
};

}  // namespace tandem::engine
