// Gradients of FullyShard: written by the passes, summed over ranks and replicas.
#include "common/ops/elementwise.h"
#include "trainer/fsdp/fully_shard.h"

namespace tandem::trainer {
namespace {

void add_or_copy(Stream& stream, const Gradient& to, const Tensor& from) {
    to.adds() ? ops::add(stream, to.memory(), from) : copy(stream, from, to.memory());
}

}  // namespace

void FullyShard::begin_gradients(int index) {
    Group& group = at(index);
    const bool in_place = layout_.ranks() == 1;
    unreduced_ = true;
    if (!in_place && !group.grads.defined()) take_gradients(group, index);
    for (std::size_t i = 0; i < group.members.size(); ++i) {
        const auto member = static_cast<std::size_t>(group.members[i]);
        const Gradient& partial = partials_[member];
        parameters_[member].grad =
            in_place ? partial.seen_as(layout_.without_padding(partial.memory(), group.members[i]))
                     : group.grads_of[i];
    }
}

void FullyShard::take_gradients(Group& group, int index) {
    const std::int64_t numel = layout_.group_range(index).numel * layout_.ranks();
    group.grads_owner = sync_ ? &gradient_buffers_ : &unreduced_buffers_;
    group.grads = group.grads_owner->take(numel, DType::float32, compute_);
    for (const int member : group.members) {
        const Tensor& full = group.grads_of.emplace_back(layout_.full(group.grads, index, member)).memory();
        const Tensor padded = layout_.full_padded(group.grads, index, member);
        fill_zero(compute_, padded.rows(full.numel(), padded.numel() - full.numel()).span());
    }
}

void FullyShard::after_backward(int index) {
    Group& group = at(index);
    reshard(group);
    for (const int member : group.members) parameters_[static_cast<std::size_t>(member)].grad = {};
    if (sync_ && layout_.ranks() > 1) reduce_scatter(group, index);
}

void FullyShard::reduce_scatter(Group& group, int index) {
    std::vector<comm::ReduceScatterItem> items;
    for (std::size_t i = 0; i < group.members.size(); ++i) {
        group.grads_of[i].filled(compute_);
        const Gradient& partial = partials_[static_cast<std::size_t>(group.members[i])];
        items.push_back({layout_.full_padded(group.grads, index, group.members[i]).span(),
                         partial.memory().span(), DType::float32, partial.adds()});
    }
    transfer_.wait(compute_.record());
    const Event reduced = group_.reduce_scatter(items, comm::ReduceOp::sum, transfer_).event();
    group.grads_owner->give_back(std::move(group.grads), reduced);
    group.grads = {};
    group.grads_of.clear();
}

// --- gradients of which each rank of a further group has a term

void FullyShard::add_terms(const TermSum& sum) {
    if (sum.members.empty()) return;
    Terms& terms = terms_.emplace_back();
    terms.members = sum.members;
    terms.group = &sum.group;
    std::int64_t numel = 0;
    for (const int member : sum.members) numel += layout_.entry(member).padded_numel();
    terms.all = Tensor::empty({numel}, DType::float32, "gradients", memory_of(sum.group, compute_));
    std::int64_t at = 0;
    for (const int member : sum.members) {
        const std::int64_t numel_of_member = layout_.entry(member).padded_numel();
        partials_[static_cast<std::size_t>(member)] = Gradient(terms.all.rows(at, numel_of_member));
        at += numel_of_member;
    }
}

void FullyShard::finish_terms() {
    for (const Terms& terms : terms_) {
        for (const int member : terms.members) partials_[static_cast<std::size_t>(member)].filled(compute_);
        compute_.wait(
            terms.group->all_reduce(terms.all.span(), DType::float32, comm::ReduceOp::sum, compute_).event());
        for (const int member : terms.members) {
            const auto at = static_cast<std::size_t>(member);
            add_or_copy(compute_, sums_[at], partials_[at].memory());
            partials_[at].discard();
        }
    }
}

void FullyShard::finish_replicas() {
    for (const Gradient& sum : sums_) sum.filled(compute_);
    compute_.wait(
        replicas_.all_reduce(partial_.span(), DType::float32, comm::ReduceOp::sum, compute_).event());
    add_or_copy(compute_, reduced_.front(), partial_);
    for (const Gradient& sum : sums_) sum.discard();
}

const Tensor& FullyShard::gradients() const {
    for (const Gradient& reduced : reduced_) reduced.filled(compute_);
    return gradients_.tensor();
}

void FullyShard::discard_gradients() {
    for (const Gradient& reduced : reduced_) reduced.discard();
}

void FullyShard::release_gradients() {
    gradients_.release();
    if (own_partial_) own_partial_->release();
}

void FullyShard::restore_gradients() {
    discard_gradients();
    gradients_.restore();
    ops::fill_zero(compute_, gradients_.tensor());  // padding, too
    if (!own_partial_) return;
    own_partial_->restore();
    ops::fill_zero(compute_, partial_);
}

void FullyShard::finish_gradients() {
    if (!sync_ || !unreduced_) return;
    for (std::size_t index = 0; index < groups_.size(); ++index) {  // that no pass under sync came by
        if (groups_[index].grads.defined()) reduce_scatter(groups_[index], static_cast<int>(index));
    }
    unreduced_ = false;
    transfer_.synchronize();
    finish_terms();
    if (own_partial_) finish_replicas();
}

}  // namespace tandem::trainer
