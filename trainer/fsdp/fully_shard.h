// FSDP: every rank of a group holds 1/n of each parameter in fp32 and sees the whole of it, in the compute
// dtype, only while a layer runs. Gathers run ahead of the compute, reduce-scatters behind it, on one
// communication stream; where the groups are too small for that to pay, everything runs inline.
#pragma once

#include <memory>
#include <vector>

#include "common/comm/communicator.h"
#include "trainer/fsdp/buffer_cycle.h"
#include "trainer/fsdp/flat_shards.h"
#include "trainer/nn/group_hooks.h"

namespace tandem::trainer {

struct FullyShardOptions {
    DType compute_dtype = DType::float32;
    bool reshard_after_forward = true;
};

class FullyShard final : public GroupHooks {
  public:
    // Shards over `shards`; ranks of `replicas` hold the same shards and get the average of their gradients.
    // Both must serve nobody else while a pass runs. Sets value and grad of the parameters, which must
    // outlive this.
    FullyShard(std::vector<Parameter>& parameters, const std::vector<std::vector<int>>& groups,
               comm::Communicator& shards, comm::Communicator& replicas, Stream& compute,
               FullyShardOptions options);
    ~FullyShard() override;

    void unshard(int group, int prefetch) override;
    void after_forward(int group) override;
    void begin_gradients(int group) override;
    void after_backward(int group) override;

    // Ends a pass or several: waits for all communication and frees every unsharded parameter.
    void finish();
    // Ends the backward passes since the last call: gradients() is then the average over all ranks, added to
    // what it was.
    void finish_gradients();

    const FlatShards& layout() const { return layout_; }
    const Tensor& shards() const { return shards_; }        // fp32, flat
    const Tensor& gradients() const { return gradients_; }  // fp32, flat
    comm::Communicator& communicator() { return group_; }   // that the parameters are sharded over

  private:
    enum class State { sharded, gathering, unsharded };
    struct Group {
        std::vector<int> members;
        State state = State::sharded;
        Tensor values;   // full, padded, compute dtype
        Tensor staging;  // this rank's shard cast to the compute dtype, while it is gathered
        Event ready;
        Tensor grads;  // full, padded, fp32
    };

    void start_unshard(Group& group, int index);
    void reshard(Group& group);
    void reduce_scatter(Group& group, int index);
    bool aliases() const;  // one rank in fp32: the shards are the parameters
    Group& at(int group) { return groups_[static_cast<std::size_t>(group)]; }

    std::vector<Parameter>& parameters_;
    comm::Communicator& group_;
    comm::Communicator& replicas_;
    Stream& compute_;
    FullyShardOptions options_;
    FlatShards layout_;
    Tensor shards_;
    Tensor gradients_;
    Tensor partial_;  // gradients before the average over replicas; gradients_ itself when there are none
    std::vector<Group> groups_;
    BufferCycle value_buffers_;
    BufferCycle staging_buffers_;
    BufferCycle gradient_buffers_;
    Stream transfer_;  // last: drained before the buffers go
};

}  // namespace tandem::trainer
