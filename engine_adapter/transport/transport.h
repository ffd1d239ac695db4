// The data path to one engine at bucket granularity: attach memory and plan once, then load and wait for each
// bucket. A message over the engine's channel says which bucket is ready, the reply that its memory may be
// written again. Transports differ in how the engine comes to the bytes. Control (begin, verify, adopt,
// commit, abort) is the Engine's.
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

// Used by one thread at a time.
class Transport {
  public:
    explicit Transport(std::shared_ptr<Connection> connection) : connection_(std::move(connection)) {}
    virtual ~Transport() = default;
    Transport(const Transport&) = delete;
    Transport& operator=(const Transport&) = delete;

    const std::string& peer() const { return connection_->peer(); }

    // The engine can reach the regions from here on, and knows which bytes of them make each bucket, until
    // another attach() or the transport's end. Throws ProtocolError naming the tensor when the plan does not
    // fit the engine or the regions, InvalidArgument when buckets are in flight.
    virtual void attach(const std::vector<Region>& regions, const TransferPlan& plan, Deadline deadline) = 0;
    // Engine::send_ahead. Nothing where the engine reads the regions.
    virtual void send_ahead(int bucket, Deadline deadline) {
        (void)bucket;
        (void)deadline;
    }
    // A bucket of the plan is ready; `checksums` has one for each of its transfers. Returns without waiting
    // for the engine. The number is free again after wait_loaded. Throws TransportError (peer gone),
    // InvalidArgument (no such bucket, wrong number of checksums, number in flight).
    virtual void load(int bucket, std::span<const ops::Checksum> checksums, Deadline deadline);
    // The same for encoded changes in region 0; `bucket` is any number not in flight.
    virtual void load_delta(int bucket, std::span<const DeltaEntry> entries, Deadline deadline);
    // Returns the engine's milliseconds of copying when the bucket's bytes are in the engine's weights, and
    // verified; after that, or after a throw, the memory is the trainer's again. Throws ProtocolError naming
    // tensor, rank and bucket: refused or corrupted.
    virtual double wait_loaded(int bucket, Deadline deadline);
    // After an abort that the engine has acknowledged.
    virtual void forget_in_flight();

    std::size_t transfers() const { return first_.back(); }  // of the attached plan

  protected:
    // Throws InvalidArgument when buckets are in flight.
    void require_attachable(const TransferPlan& plan) const;
    // Tells the engine of the plan, and of the regions as `header` and `fds` name them.
    void announce(nlohmann::json header, std::span<const int> fds, const TransferPlan& plan,
                  Deadline deadline);

    // The parts of load, load_delta and wait_loaded, for a transport that does more in between.
    void require_free(int bucket) const;
    void require_loadable(int bucket, std::span<const ops::Checksum> checksums) const;
    std::int64_t request_load(nlohmann::json header, int bucket, std::span<const ops::Checksum> checksums,
                              Deadline deadline);  // `header`: fields beside a bucket's own
    void request_changes(nlohmann::json header, int bucket, std::span<const DeltaEntry> entries,
                         Deadline deadline);
    std::int64_t request_of(int bucket) const;  // throws InvalidArgument: not in flight
    void drop(int bucket);                      // forgets what is in flight under that number
    bool any_in_flight() const { return !in_flight_.empty(); }
    static std::string phase_of(int bucket);

  private:
    std::shared_ptr<Connection> connection_;
    std::vector<std::uint64_t> first_{0};    // of the attached plan
    std::map<int, std::int64_t> in_flight_;  // bucket -> request
};

}  // namespace tandem::engine
