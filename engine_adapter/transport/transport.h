// The way of buckets to an engine that runs our receiver: a message over its channel says which bucket is ready, the
// reply that its memory may be written again. Transports differ in how the engine comes to the bytes.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/deadline.h"
#include "engine_adapter/channel/connection.h"
#include "engine_adapter/engine.h"

namespace tandem::engine {

class Transport : public BucketLoader {
  public:
    explicit Transport(std::shared_ptr<Connection> connection) : connection_(std::move(connection)) {}
    Transport(const Transport&) = delete;
    Transport& operator=(const Transport&) = delete;

    const std::string& peer() const { return connection_->peer(); }

    // The engine can reach the regions from here on, and knows which bytes of them make each bucket, until
    // another attach() or the transport's end. Throws ProtocolError naming the tensor when the plan does not
    // fit the engine or the regions, InvalidArgument when buckets are in flight.
    virtual void attach(const std::vector<Region>& regions, const TransferPlan& plan, Deadline deadline) = 0;
    void load(int bucket, std::span<const ops::Checksum> checksums, Deadline deadline) final;
    void load_delta(int bucket, std::span<const DeltaEntry> entries, Deadline deadline) final;
    double wait_loaded(int bucket, Deadline deadline) override;
    // After an abort that the engine has acknowledged.
    virtual void forget_in_flight();

    std::size_t transfers() const { return first_.back(); }  // of the attached plan

  protected:
    // Throws InvalidArgument when buckets are in flight.
    void require_attachable(const TransferPlan& plan) const;
    // Tells the engine of the plan, and of the regions as `header` and `fds` name them; returns its answer.
    Message announce(nlohmann::json header, std::span<const int> fds, const TransferPlan& plan,
                     Deadline deadline);

    // The rest of load and of load_delta, once the arguments have been checked: asks the engine for the bucket. A transport
    // that does more than that adds to `header`, which has nothing yet of the bucket's own, and calls this one in between.
    virtual std::int64_t request_load(nlohmann::json header, int bucket,
                                      std::span<const ops::Checksum> checksums, Deadline deadline);
    virtual void request_changes(nlohmann::json header, int bucket, std::span<const DeltaEntry> entries,
                                 Deadline deadline);

    std::int64_t request_of(int bucket) const;  // throws InvalidArgument: not in flight
    void drop(int bucket);                      // forgets what is in flight under that number
    bool any_in_flight() const { return !in_flight_.empty(); }
    static std::string phase_of(int bucket);
    Connection& connection() const { return *connection_; }

  private:
    std::shared_ptr<Connection> connection_;
    std::vector<std::uint64_t> first_{0};    // of the attached plan
    std::map<int, std::int64_t> in_flight_;  // bucket -> request
};

}  // namespace tandem::engine
