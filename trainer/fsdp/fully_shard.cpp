#include "trainer/fsdp/fully_shard.h"

#include <algorithm>

#include "common/ops/elementwise.h"

namespace tandem::trainer {
namespace {

// Below this size of the largest group a hand-over to another thread costs more than the transfer.
constexpr std::int64_t kOverlapBytes = 1 << 20;
// Gradient buffers of one size: one is filled while the other is reduced.
constexpr int kGradientBuffers = 2;

Stream make_transfer_stream(const FlatShards& layout, std::size_t groups, DType dtype) {
    std::int64_t largest = 0;
    for (std::size_t group = 0; group < groups; ++group) {
        largest = std::max(largest, layout.group_range(static_cast<int>(group)).numel);
    }
    const std::int64_t bytes = largest * layout.ranks() * static_cast<std::int64_t>(dtype_size(dtype));
    return layout.ranks() > 1 && bytes >= kOverlapBytes ? Stream::make_worker("fsdp") : Stream::make_inline();
}

}  // namespace

FullyShard::FullyShard(std::vector<Parameter>& parameters, const std::vector<std::vector<int>>& groups,
                       comm::Communicator& shards, comm::Communicator& replicas, Stream& compute,
                       FullyShardOptions options)
    : parameters_(parameters),
      group_(shards),
      replicas_(replicas),
      compute_(compute),
      options_(options),
      layout_(parameters, groups, group_.size(), group_.rank()),
      shards_(Tensor::zeros({layout_.numel()}, DType::float32, "shards", group_.memory())),
      gradients_(Tensor::zeros({layout_.numel()}, DType::float32, "gradients", group_.memory())),
      partial_(replicas_.size() == 1
                   ? gradients_
                   : Tensor::zeros({layout_.numel()}, DType::float32, "gradients", group_.memory())),
      value_buffers_("unsharded", cpu_pool()),
      staging_buffers_("unsharded", group_.memory()),
      gradient_buffers_("unsharded_gradients", group_.memory(), kGradientBuffers),
      transfer_(make_transfer_stream(layout_, groups.size(), options.compute_dtype)) {
    for (const std::vector<int>& members : groups) {
        Group& group = groups_.emplace_back();
        group.members = members;
    }
}

FullyShard::~FullyShard() {
    for (Parameter& parameter : parameters_) parameter.value = parameter.grad = {};
}

bool FullyShard::aliases() const {
    return layout_.ranks() == 1 && options_.compute_dtype == DType::float32;
}

void FullyShard::unshard(int index, int prefetch) {
    Group& group = at(index);
    if (group.state != State::unsharded) {
        start_unshard(group, index);
        compute_.wait(group.ready);
        if (group.staging.defined()) staging_buffers_.give_back(std::move(group.staging), {});
        group.staging = {};
        for (const int member : group.members) {
            parameters_[static_cast<std::size_t>(member)].value =
                aliases() ? layout_.local(shards_, member) : layout_.full(group.values, index, member);
        }
        group.state = State::unsharded;
    }
    if (prefetch != kNone && !transfer_.is_inline()) start_unshard(at(prefetch), prefetch);
}

void FullyShard::start_unshard(Group& group, int index) {
    if (group.state != State::sharded) return;
    group.state = State::gathering;
    if (aliases()) return;
    const FlatShards::Range& range = layout_.group_range(index);
    const DType dtype = options_.compute_dtype;
    const Tensor own = shards_.rows(range.offset, range.numel);
    transfer_.wait(compute_.record());  // the optimizer may just have written the shards
    group.values = value_buffers_.take(range.numel * layout_.ranks(), dtype, transfer_);
    if (layout_.ranks() == 1) {
        ops::cast(transfer_, own, group.values);
        group.ready = transfer_.record();
        return;
    }
    Tensor send = own;
    if (dtype != DType::float32) {
        group.staging = staging_buffers_.take(range.numel, dtype, transfer_);
        ops::cast(transfer_, own, group.staging);
        send = group.staging;
    }
    std::vector<comm::GatherItem> items;
    for (const int member : group.members) {
        const FlatShards::Entry& entry = layout_.entry(member);
        items.push_back({send.rows(entry.offset - range.offset, entry.padded_numel()).span(),
                         layout_.full_padded(group.values, index, member).span()});
    }
    group.ready = group_.all_gather(items, transfer_).event();
}

void FullyShard::reshard(Group& group) {
    if (group.state == State::sharded) return;
    for (const int member : group.members) parameters_[static_cast<std::size_t>(member)].value = {};
    if (group.values.defined()) value_buffers_.give_back(std::move(group.values), compute_.record());
    group.values = {};
    group.state = State::sharded;
}

void FullyShard::after_forward(int index) {
    if (options_.reshard_after_forward) reshard(at(index));
}

void FullyShard::begin_gradients(int index) {
    Group& group = at(index);
    const bool in_place = layout_.ranks() == 1;
    if (!in_place) {
        const std::int64_t numel = layout_.group_range(index).numel * layout_.ranks();
        group.grads = gradient_buffers_.take(numel, DType::float32, compute_);
        ops::fill_zero(compute_, group.grads);
    }
    for (const int member : group.members) {
        parameters_[static_cast<std::size_t>(member)].grad =
            in_place ? layout_.local(partial_, member) : layout_.full(group.grads, index, member);
    }
}

void FullyShard::after_backward(int index) {
    Group& group = at(index);
    reshard(group);
    for (const int member : group.members) parameters_[static_cast<std::size_t>(member)].grad = {};
    if (layout_.ranks() > 1) reduce_scatter(group, index);
}

void FullyShard::reduce_scatter(Group& group, int index) {
    std::vector<comm::ReduceScatterItem> items;
    for (const int member : group.members) {
        items.push_back({layout_.full_padded(group.grads, index, member).span(),
                         layout_.padded(partial_, member).span(), DType::float32, /*accumulate=*/true});
    }
    transfer_.wait(compute_.record());
    const Event reduced = group_.reduce_scatter(items, comm::ReduceOp::avg, transfer_).event();
    gradient_buffers_.give_back(std::move(group.grads), reduced);
    group.grads = {};
}

void FullyShard::finish() {
    transfer_.synchronize();
    for (Group& group : groups_) {
        if (group.state == State::gathering && group.staging.defined()) {
            staging_buffers_.give_back(std::move(group.staging), {});
            group.staging = {};
        }
        reshard(group);
    }
}

void FullyShard::finish_gradients() {
    transfer_.synchronize();
    if (replicas_.size() == 1) return;
    compute_.wait(
        replicas_.all_reduce(partial_.span(), DType::float32, comm::ReduceOp::avg, compute_).event());
    ops::add(compute_, gradients_, partial_);
    ops::fill_zero(compute_, partial_);
}

}  // namespace tandem::trainer
