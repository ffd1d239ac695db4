// fsdp/fully_shard.h on paper: which groups' values and gradients are whole at a time, and which buffers stay
// for reuse.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "trainer/fsdp/flat_shards.h"
#include "trainer/fsdp/fully_shard.h"
#include "trainer/memory/ledger.h"

namespace tandem::trainer::memory {

class ShardLedger final : public GroupHooks {
  public:
    ShardLedger(Ledger& ledger, const FlatShards& layout, std::size_t groups,
                const FullyShardOptions& options, bool on_gpu);

    void unshard(int group, int prefetch) override;
    void after_forward(int group) override;
    void begin_gradients(int group) override;
    void after_backward(int group) override;
    void finish();
    void finish_gradients();
    void free_buffers();
    void set_requires_gradient_sync(bool sync) { sync_ = sync; }

  private:
    // buffer_cycle.h: buffers of a size that take turns and are kept.
    class Cycle {
      public:
        // least: buffers of any size that are made before one is used again
        Cycle(Ledger& ledger, std::string tag, int most, int least)
            : ledger_(ledger), tag_(std::move(tag)), most_(most), least_(least) {}
        void make_at_least(int least, std::int64_t bytes);
        void take(std::int64_t bytes);
        void give_back(std::int64_t bytes, bool idle);
        void all_idle();
        void free();  // what is idle

      private:
        struct OfOneSize {
            int least = 0;
            int made = 0;
            int idle = 0;
            int busy = 0;  // given back, but work on them is still under way
        };
        Ledger& ledger_;
        std::string tag_;
        int most_;
        int least_;
        std::map<std::int64_t, OfOneSize> sizes_;
    };
    struct Group {
        bool whole = false;    // gathered, or on its way
        bool staging = false;  // its shard is held in the compute dtype, or was read from the tier
        bool slice = false;
        bool grads = false;
        Cycle* grads_owner = nullptr;
    };

    void start_unshard(int index);
    void drop_staging(int index);
    void drop_values(int index);
    void drop_slice(int index);
    void reduce(int index);
    Group& at(int index) { return groups_[static_cast<std::size_t>(index)]; }
    std::int64_t shard_numel(int index) const { return layout_.group_range(index).numel; }
    std::int64_t value_bytes(int index) const;
    std::int64_t staging_bytes(int index) const;
    std::int64_t slice_bytes(int index) const;
    std::int64_t grad_bytes(int index) const { return shard_numel(index) * layout_.ranks() * 4; }

    bool rounded_;
    const FlatShards& layout_;
    FullyShardOptions options_;
    int reshard_ranks_;
    bool aliases_;
    bool staged_;  // a shard that is in memory is sent from a copy
    bool overlaps_;
    bool sync_ = true;
    std::vector<Group> groups_;
    Cycle values_, staging_, gradients_, unreduced_;
};

}  // namespace tandem::trainer::memory
