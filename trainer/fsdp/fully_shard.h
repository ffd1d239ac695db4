// FSDP: every rank of a group holds 1/n of each parameter in fp32 and sees the whole of it, in the compute
// dtype, only while a layer runs. Gathers run ahead of the compute, reduce-scatters behind it, on one
// communication stream; where the groups are too small for that to pay, everything runs inline.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "common/comm/communicator.h"
#include "trainer/fsdp/buffer_cycle.h"
#include "trainer/fsdp/flat_shards.h"
#include "trainer/fsdp/reshard_after_forward.h"
#include "trainer/nn/group_hooks.h"
#include "trainer/offload/flat_state.h"

namespace tandem::trainer {

// True when gathers and reductions run on a thread of their own, which the largest group must be worth.
// `offloaded`: gathers may begin with a read from the tier.
bool transfer_overlaps(const FlatShards& layout, std::size_t groups, DType dtype, bool offloaded);

struct FullyShardOptions {
    DType compute_dtype = DType::float32;
    ReshardAfterForward reshard_after_forward = true;
    bool offload = false;  // the shards may be offloaded while passes run
    // Whether the pages of a GPU's memory may go between passes; peers and engines then cannot reach it.
    Pages shard_pages = Pages::stay;
    Pages gradient_pages = Pages::stay;
};

// True when a rank keeps its shard in the compute dtype, too: 2 bytes a parameter against casts in each pass.
bool keeps_rounded(const FullyShardOptions& options, bool on_gpu);

// Parameters that ranks outside of the shards' group hold the same part of, while each makes a term of the gradient only.
struct TermSum {
    std::vector<int> members;
    comm::Communicator& group;  // those ranks
};

class FullyShard final : public GroupHooks {
  public:
    // Gradient buffers of one size: one is filled while the other is reduced.
    static constexpr int kGradientBuffers = 2;

    // Shards over `shards`; ranks of `replicas` hold the same shards and get the sum of their gradients.
    // The shards lie in the memory of `world`, all ranks, where engines read them. No one else may use the groups while a pass runs. Sets value and grad of the parameters, which must
    // outlive this. sums: their gradients are summed over one more group, once, when gradients are finished.
    FullyShard(std::vector<Parameter>& parameters, const std::vector<std::vector<int>>& groups,
               comm::Communicator& shards, comm::Communicator& replicas, comm::Communicator& world,
               Stream& compute, FullyShardOptions options, const std::vector<TermSum>& sums = {});
    ~FullyShard() override;

    void unshard(int group, int prefetch) override;
    void after_forward(int group) override;
    void begin_gradients(int group) override;
    void after_backward(int group) override;

    // Ends a pass or several: waits for all communication and frees every unsharded parameter. Where ranks read shared values
    // it waits for all of them: from here on they may be written.
    void finish();
    // The flat shard that passes from here on read, in memory or offloaded: state(), or another one of its
    // layout in the compute dtype. Between passes only.
    void gather_from(FlatState& flat) { source_ = &flat; }
    // Ends the backward passes since the last call: gradients() is then the sum over all ranks, added to
    // what it was. Nothing happens while gradients are not to be reduced.
    void finish_gradients();

    // gradients() are zeros, until more passes run.
    void discard_gradients();

    // Between steps: frees what is kept for the next pass alone; releases the gradients' pages;
    // restores them, as zeros.
    void free_buffers();
    void release_gradients();
    void restore_gradients();

    // false: backward passes add up this rank's unsharded fp32 gradients; the next one under true reduces
    // them all at once. The same on every rank.
    void set_requires_gradient_sync(bool sync) { sync_ = sync; }
    bool has_unreduced_gradients() const { return unreduced_; }

    const FlatShards& layout() const { return layout_; }
    FlatState& state() { return shards_; }  // fp32, flat; whoever writes it calls state_written()
    const FlatState& state() const { return shards_; }
    const Tensor& shards() const { return shards_.tensor(); }
    // Passes may read a copy of state() in the compute dtype, which is then brought up to date by the next one. On every rank
    // alike. On the CPU a pass throws InvalidArgument where this was forgotten and a parameter's first element has changed.
    void state_written() { rounded_is_old_ = true; }
    // That copy, for a step that writes all of it beside state(); none where there is none. The step ends with step_done(),
    // which waits until it has ended on every rank that reads it.
    std::span<const PartCopy> rounded_for_step();
    void step_done();
    const Tensor& gradients() const;                       // fp32, flat
    MemoryPool& memory() const;                            // that peers reach: for more of the layout
    comm::Communicator& communicator() { return group_; }  // that the parameters are sharded over

  private:
    enum class State { sharded, sliced, gathering, unsharded };
    struct Group {
        std::vector<int> members;
        State state = State::sharded;
        Tensor values;    // full, padded, compute dtype
        Tensor onloaded;  // this rank's shard from the tier, while it is gathered
        Tensor staging;   // this rank's shard cast to the compute dtype, while it is gathered
        Tensor slice;     // what this rank keeps of values between forward and backward
        Tensor shared;    // values that ranks share, written by all; undefined: they share none
        Event ready;
        Tensor grads;                        // full, padded, fp32
        std::vector<Gradient> grads_of;      // [member]: its part of it, without the padding
        BufferCycle* grads_owner = nullptr;  // where grads goes back to
    };

    // Gradients of TermSum::members since the last finish_gradients().
    struct Terms {
        std::vector<int> members;
        comm::Communicator* group = nullptr;
        Tensor all;
    };
    void add_terms(const TermSum& sum);
    void finish_terms();
    void finish_replicas();
    void take_gradients(Group& group, int index);

    void start_unshard(Group& group, int index);
    Tensor own_shard(Group& group, int index);
    bool sent_in_place(const Tensor& own) const;
    bool reads_rounded() const { return rounded_ && source_ == &shards_; }
    bool reads_shared() const { return shares_ && reads_rounded(); }
    void share_rounded();
    void renew_rounded();
    void check_rounded();
    void meet();
    void drop_staging(Group& group);
    void gather_slices(Group& group, int index);
    void keep_slice(Group& group, int index);
    Tensor slice_of(const Group& group, int index, int member) const;
    void free_values(Group& group);
    void reshard(Group& group);
    void reduce_scatter(Group& group, int index);
    // Memory on the stream's device that the others of the group reach.
    static MemoryPool& memory_of(comm::Communicator& group, Stream& stream);
    bool aliases() const;  // one rank, no cast: what is gathered are the parameters
    Group& at(int group) { return groups_[static_cast<std::size_t>(group)]; }

    std::vector<Parameter>& parameters_;
    comm::Communicator& group_;
    comm::Communicator& replicas_;
    Stream& compute_;
    FullyShardOptions options_;
    FlatShards layout_;
    int reshard_ranks_;  // that share a group's values between forward and backward; 0: all keep the whole
    std::shared_ptr<comm::Communicator> slices_;  // those ranks, when they are some of group_
    FlatState shards_;
    FlatState* source_;  // what is gathered
    // Of shards_ in a narrower compute dtype: what is gathered in their place, while they stay in memory. Or, where ranks
    // share memory, the values of some groups whole: all ranks write their shards into all, and nothing is gathered.
    std::optional<PagedTensor> rounded_;
    bool shares_;
    std::vector<PartCopy> rounded_parts_;  // what this rank writes
    bool rounded_is_old_ = true;
    bool rounded_is_checked_ = false;  // by this pass
    bool reading_shared_ = false;
    PagedTensor gradients_;
    std::optional<PagedTensor> own_partial_;  // where there are replicas
    Tensor partial_;  // gradients before the sum over replicas; gradients_ itself when there are none
    std::vector<Terms> terms_;
    // [parameter], padded shards: of partial_; and where its passes bring it, that or its part of Terms::all.
    std::vector<Gradient> sums_;
    std::vector<Gradient> partials_;
    std::vector<Gradient> reduced_;  // which make up gradients_: sums_, or with replicas all of it as one
    bool sync_ = true;
    bool unreduced_ = false;
    std::vector<Group> groups_;
    BufferCycle value_buffers_;
    BufferCycle staging_buffers_;  // also slices
    BufferCycle gradient_buffers_;
    BufferCycle unreduced_buffers_;  // gradients that stay for later micro-batches: of every group at once
    Stream transfer_;                // last: drained before the buffers go
    std::optional<Stream> onloads_;  // on a GPU: reads from the tier, beside the other streams' work
};

}  // namespace tandem::trainer
