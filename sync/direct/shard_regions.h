// The regions in which every rank's shards lie, for engines to map: the ranks' shared memory on the CPU,
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

    // The event that each rank records after it has changed its shards; before note().
    void set_events(std::vector<engine::RegionEvent> events) { events_ = std::move(events); }
    // True when this rank's shards have moved since they were noted.
    bool changed(const Offer& offer) const;
    // Collective: every rank learns where every shard lies. Notes in `status` the tensor that engines cannot
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
