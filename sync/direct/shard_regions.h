// Where every rank's shards lie in memory that an engine can map: in the ranks' shared memory on the CPU, in
// allocations that engines open by their handles on GPUs.
#pragma once

#include <string>
#include <vector>

#include "common/comm/communicator.h"
#include "engine_adapter/engine.h"
#include "sync/strategy/push_status.h"

namespace tandem::sync {

class ShardRegions {
  public:
    // The shard of each tensor that this rank offers; empty where it has none. `names` are for messages.
    struct Offer {
        std::vector<ConstSpan> shards;
        std::vector<std::string> names;
    };

    ShardRegions(comm::Communicator& world, Device device) : world_(world), device_(device) {}

    // What each rank records behind what it does to its shards; before note().
    void set_events(std::vector<engine::RegionEvent> events) { events_ = std::move(events); }
    // Whether this rank's shards lie elsewhere than when they were noted.
    bool changed(const Offer& offer) const;
    // Collective: every rank learns where every shard lies. Notes in `status` which tensor no engine could
    // reach.
    void note(const Offer& offer, PushStatus& status);

    struct At {
        std::uint32_t region = 0;
        std::uint64_t offset = 0;
    };
    At of(int rank, std::size_t tensor) const {
        return at_[static_cast<std::size_t>(rank) * tensors_ + tensor];
    }
    const std::vector<engine::Region>& regions() const { return regions_; }

  private:
    struct Mine {
        std::vector<engine::RegionHandle> allocations;  // GPUs
        std::vector<At> at;
    };
    Mine find_on_cpu(const Offer& offer) const;
    Mine find_on_gpu(const Offer& offer) const;

    comm::Communicator& world_;
    const Device device_;
    std::size_t tensors_ = 0;
    std::vector<const std::byte*> noted_;
    std::vector<At> at_;                       // [rank × tensors_ + tensor]
    std::vector<engine::RegionEvent> events_;  // by rank; none on the CPU
    std::vector<engine::Region> regions_;
};

}  // namespace tandem::sync
