#include "trainer/fsdp/fully_shard.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include "common/ops/elementwise.h"

namespace tandem::trainer {
namespace {

// Below this size of the largest group a hand-over to another thread costs more than the transfer.
constexpr std::int64_t kOverlapBytes = 1 << 20;

// The group of `ranks` neighbours that this rank belongs to; null when that is this rank alone, or all ranks.
std::shared_ptr<comm::Communicator> neighbours(comm::Communicator& group, int ranks) {
    if (ranks <= 1 || ranks == group.size()) return nullptr;
    const auto first = group.global_ranks().begin() + group.rank() / ranks * ranks;
    return group.split({first, first + ranks}, group.name() + ".slices");
}

PagedTensor zeros(Stream& stream, std::int64_t numel, MemoryPool& pool, Pages pages) {
    PagedTensor result({numel}, DType::float32, "gradients", pool, pages);
    fill_zero(stream, result.tensor().span());
    return result;
}

}  // namespace

MemoryPool& FullyShard::memory_of(comm::Communicator& group, Stream& stream) {
    if (group.size() == 1 && stream.device().type != DeviceType::cpu) return device_pool(stream.device());
    return group.memory(stream.device());
}

bool keeps_rounded(const FullyShardOptions& options, bool on_gpu) {
    return options.compute_dtype == DType::bfloat16 && !options.offload &&
           (!on_gpu || options.shard_pages == Pages::stay);
}

bool transfer_overlaps(const FlatShards& layout, std::size_t groups, DType dtype, bool offloaded) {
    std::int64_t largest = 0;
    for (std::size_t group = 0; group < groups; ++group) {
        largest = std::max(largest, layout.group_range(static_cast<int>(group)).numel);
    }
    const std::int64_t bytes = largest * layout.ranks() * static_cast<std::int64_t>(dtype_size(dtype));
    return (layout.ranks() > 1 || offloaded) && bytes >= kOverlapBytes;
}

// --- its life

FullyShard::FullyShard(std::vector<Parameter>& parameters, const std::vector<std::vector<int>>& groups,
                       comm::Communicator& shards, comm::Communicator& replicas, comm::Communicator& world,
                       Stream& compute, FullyShardOptions options, const std::vector<TermSum>& sums)
    : parameters_(parameters),
      group_(shards),
      replicas_(replicas),
      compute_(compute),
      options_(options),
      layout_(parameters, groups, group_.size(), group_.rank()),
      reshard_ranks_(options.reshard_after_forward.ranks(group_.size())),
      slices_(neighbours(group_, reshard_ranks_)),
      shards_(compute, layout_.numel(), DType::float32, "shards", world.memory(compute.device()),
              options.shard_pages),
      source_(&shards_),
      shares_(group_.size() > 1 && compute.device().type == DeviceType::cpu && group_.shares_memory() &&
              keeps_rounded(options, false)),
      gradients_(zeros(compute, layout_.numel(), memory_of(group_, compute), options.gradient_pages)),
      value_buffers_("unsharded", device_pool(compute.device())),
      staging_buffers_("unsharded", memory_of(group_, compute)),
      gradient_buffers_("unsharded_gradients", memory_of(group_, compute)),
      unreduced_buffers_("unsharded_gradients", memory_of(group_, compute)),
      transfer_(compute.device().type != DeviceType::cpu ||
                        transfer_overlaps(layout_, groups.size(), options.compute_dtype, options.offload)
                    ? Stream::make(compute.device(), "fsdp")
                    : Stream::make_inline()) {
    if (replicas_.size() > 1) {
        own_partial_.emplace(
            zeros(compute, layout_.numel(), memory_of(replicas_, compute), options.gradient_pages));
    }
    partial_ = own_partial_ ? own_partial_->tensor() : gradients_.tensor();
    for (std::size_t i = 0; i < parameters.size(); ++i)
        sums_.emplace_back(layout_.padded(partial_, static_cast<int>(i)));
    partials_ = sums_;
    for (const TermSum& sum : sums) add_terms(sum);
    reduced_ = own_partial_ ? std::vector{Gradient(gradients_.tensor())} : sums_;
    if (options.offload && compute.device().type != DeviceType::cpu)
        onloads_.emplace(Stream::make(compute.device(), "offload"));
    for (const std::vector<int>& members : groups) {
        Group& group = groups_.emplace_back();
        group.members = members;
    }
    if (shares_) {
        share_rounded();
    } else if (keeps_rounded(options, compute.device().type != DeviceType::cpu)) {
        rounded_.emplace(Shape{layout_.numel()}, options.compute_dtype, "unsharded", memory());
        rounded_parts_.push_back({0, rounded_->tensor()});
    }
    if (transfer_.is_inline()) return;
    std::map<std::int64_t, int> groups_of_size;
    for (std::size_t i = 0; i < groups.size(); ++i) {
        const std::int64_t numel = layout_.group_range(static_cast<int>(i)).numel * layout_.ranks();
        const int least = std::min(kGradientBuffers, ++groups_of_size[numel]);
        for (BufferCycle* cycle : {&gradient_buffers_, &unreduced_buffers_})
            cycle->make_at_least(least, numel, DType::float32);
    }
}

FullyShard::~FullyShard() {
    for (Parameter& parameter : parameters_) {
        parameter.value = {};
        parameter.grad = {};
    }
}

MemoryPool& FullyShard::memory() const {
    return memory_of(group_, compute_);
}

bool FullyShard::aliases() const {
    return layout_.ranks() == 1 &&
           (reads_rounded() || (source_->resident() && source_->tensor().dtype() == options_.compute_dtype));
}

// --- parameters: gathered for a group, perhaps the next one too, and dropped again

void FullyShard::unshard(int index, int prefetch) {
    Group& group = at(index);
    if (group.state != State::unsharded) {
        start_unshard(group, index);
        compute_.wait(group.ready);
        drop_staging(group);
        const Tensor& flat = reads_rounded() ? rounded_->tensor() : source_->tensor();
        for (const int member : group.members) {
            parameters_[static_cast<std::size_t>(member)].value =
                aliases() ? layout_.local(flat, member)
                          : layout_.full(reads_shared() ? group.shared : group.values, index, member);
        }
        group.state = State::unsharded;
    }
    if (prefetch != kNone && !transfer_.is_inline()) start_unshard(at(prefetch), prefetch);
}

void FullyShard::start_unshard(Group& group, int index) {
    if (group.state == State::gathering || group.state == State::unsharded) return;
    if (reads_rounded()) renew_rounded();
    group.state = State::gathering;
    if (aliases()) return;
    if (reads_shared()) {
        reading_shared_ = true;
        return;
    }
    const FlatShards::Range& range = layout_.group_range(index);
    const DType dtype = options_.compute_dtype;
    group.values = value_buffers_.take(range.numel * layout_.ranks(), dtype, transfer_);
    // The optimizer may just have written the shards; and buffers of a GPU are the compute stream's first.
    transfer_.wait(compute_.record());
    if (group.slice.defined()) {
        gather_slices(group, index);
        return;
    }
    const Tensor own = own_shard(group, index);
    if (layout_.ranks() == 1) {
        ops::cast(transfer_, own, group.values);
        group.ready = transfer_.record();
        return;
    }
    Tensor send = own;
    if (!sent_in_place(own)) {
        group.staging = staging_buffers_.take(range.numel, dtype, transfer_);
        transfer_.wait(compute_.record());
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

// This rank's part of what is gathered: in place, or on its way from the tier.
Tensor FullyShard::own_shard(Group& group, int index) {
    const FlatShards::Range& range = layout_.group_range(index);
    if (reads_rounded()) return rounded_->tensor().rows(range.offset, range.numel);
    const Tensor& flat = source_->tensor();
    if (source_->resident()) return flat.rows(range.offset, range.numel);
    Stream& reader = onloads_ ? *onloads_ : transfer_;
    group.onloaded = staging_buffers_.take(range.numel, flat.dtype(), reader);
    reader.wait(compute_.record());
    source_->read(reader, range.offset, group.onloaded);
    if (onloads_) transfer_.wait(onloads_->record());
    return group.onloaded;
}

// True when peers read this rank's part in place. They cannot reach memory whose pages may go.
bool FullyShard::sent_in_place(const Tensor& own) const {
    return own.dtype() == options_.compute_dtype &&
           (reads_rounded() || source_->of_pool() || !source_->resident());
}

// --- the copy in the compute dtype. Where ranks share it, reads and writes never overlap: ranks meet after the last read of
// their passes (finish), and after their writes (step_done, renew_rounded).

// Groups lie whole in one rank's memory, the largest first, each where least is.
void FullyShard::share_rounded() {
    std::vector<std::size_t> order(groups_.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    const auto numel_of = [&](std::size_t group) {
        return layout_.group_range(static_cast<int>(group)).numel * layout_.ranks();
    };
    std::stable_sort(order.begin(), order.end(),
                     [&](std::size_t a, std::size_t b) { return numel_of(a) > numel_of(b); });
    std::vector<std::size_t> bytes(static_cast<std::size_t>(layout_.ranks()));  // [rank]
    std::vector<std::pair<std::size_t, std::size_t>> places(groups_.size());    // [group]: rank, offset
    const std::size_t element = dtype_size(options_.compute_dtype);
    for (const std::size_t group : order) {
        const auto least = std::min_element(bytes.begin(), bytes.end());
        places[group] = {static_cast<std::size_t>(least - bytes.begin()), *least};
        *least += static_cast<std::size_t>(numel_of(group)) * element;
    }
    const auto own = static_cast<std::int64_t>(bytes[static_cast<std::size_t>(group_.rank())] / element);
    rounded_.emplace(Shape{own}, options_.compute_dtype, "unsharded", memory());
    const std::vector<Span> shown = group_.show(rounded_->tensor().span(), bytes);
    for (std::size_t i = 0; i < groups_.size(); ++i) {
        const auto [rank, offset] = places[i];
        const std::size_t size = static_cast<std::size_t>(numel_of(i)) * element;
        groups_[i].shared =
            Tensor::borrow(shown[rank].subspan(offset, size), {numel_of(i)}, options_.compute_dtype);
        for (const int member : groups_[i].members) {
            const std::int64_t numel = layout_.entry(member).padded_numel();
            const Tensor whole = layout_.full_padded(groups_[i].shared, static_cast<int>(i), member);
            rounded_parts_.push_back(
                {layout_.entry(member).offset, whole.rows(group_.rank() * numel, numel)});
        }
    }
}

void FullyShard::meet() {
    compute_.wait(group_.barrier(compute_).event());
}

// Whoever writes parameters without saying so writes whole ones: their first elements tell.
void FullyShard::check_rounded() {
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
        const FlatShards::Entry& entry = layout_.entry(static_cast<int>(i));
        if (entry.local_rows == 0) continue;
        const auto part =
            std::upper_bound(rounded_parts_.begin(), rounded_parts_.end(), entry.offset,
                             [](std::int64_t at, const PartCopy& copy) { return at < copy.first; }) -
            1;
        const float master = shards_.tensor().data<float>()[entry.offset];
        const bfloat16 read = part->copy.data<bfloat16>()[entry.offset - part->first];
        require(
            bfloat16(master).bits == read.bits,
            "{} was written after the passes' copy of it in bfloat16: call weights_written() after writing "
            "parameters",
            parameters_[i].name);
    }
}

void FullyShard::renew_rounded() {
    if (!rounded_is_checked_ && !rounded_is_old_ && compute_.device().type == DeviceType::cpu)
        compute_.enqueue([this] { check_rounded(); });
    rounded_is_checked_ = true;
    if (!std::exchange(rounded_is_old_, false)) return;
    rounded_->restore();
    if (shares_) meet();  // all have pages
    for (const PartCopy& part : rounded_parts_)
        ops::cast(compute_, shards_.tensor().rows(part.first, part.copy.numel()), part.copy);
    if (shares_) meet();
}

std::span<const PartCopy> FullyShard::rounded_for_step() {
    if (!rounded_ || !rounded_->has_pages()) return {};
    rounded_is_old_ = false;
    return rounded_parts_;
}

void FullyShard::step_done() {
    if (shares_) meet();
}

void FullyShard::drop_staging(Group& group) {
    for (Tensor* buffer : {&group.onloaded, &group.staging}) {
        if (buffer->defined()) staging_buffers_.give_back(std::move(*buffer), group.ready);
        *buffer = {};
    }
}

// A member's part of group.slice. Neighbour r keeps the r-th of reshard_ranks_ equal pieces of its padded
// rows.
Tensor FullyShard::slice_of(const Group& group, int index, int member) const {
    const int shards_kept = layout_.ranks() / reshard_ranks_;
    const FlatShards::Entry& entry = layout_.entry(member);
    return group.slice.rows((entry.offset - layout_.group_range(index).offset) * shards_kept,
                            entry.padded_numel() * shards_kept);
}

void FullyShard::keep_slice(Group& group, int index) {
    const std::int64_t numel = layout_.group_range(index).numel * layout_.ranks() / reshard_ranks_;
    group.slice = staging_buffers_.take(numel, options_.compute_dtype, compute_);
    for (const int member : group.members) {
        const Tensor slice = slice_of(group, index, member);
        const Tensor full = layout_.full_padded(group.values, index, member);
        copy(compute_, full.rows(slices_->rank() * slice.numel(), slice.numel()).span(), slice.span());
    }
}

void FullyShard::gather_slices(Group& group, int index) {
    std::vector<comm::GatherItem> items;
    for (const int member : group.members) {
        items.push_back(
            {slice_of(group, index, member).span(), layout_.full_padded(group.values, index, member).span()});
    }
    group.ready = slices_->all_gather(items, transfer_).event();
    staging_buffers_.give_back(std::move(group.slice), group.ready);
    group.slice = {};
}

void FullyShard::free_values(Group& group) {
    for (const int member : group.members) parameters_[static_cast<std::size_t>(member)].value = {};
    if (group.values.defined()) value_buffers_.give_back(std::move(group.values), compute_.record());
    group.values = {};
}

void FullyShard::reshard(Group& group) {
    if (group.state == State::sharded) return;
    free_values(group);
    if (group.slice.defined()) staging_buffers_.give_back(std::move(group.slice), compute_.record());
    group.slice = {};
    group.state = State::sharded;
}

void FullyShard::after_forward(int index) {
    if (reshard_ranks_ == 0) return;
    if (!slices_ || reads_shared()) return reshard(at(index));
    keep_slice(at(index), index);
    free_values(at(index));
    at(index).state = State::sliced;
}

// --- between passes

void FullyShard::finish() {
    transfer_.synchronize();
    for (Group& group : groups_) {
        if (group.state == State::gathering) drop_staging(group);
        reshard(group);
    }
    rounded_is_checked_ = false;
    if (std::exchange(reading_shared_, false)) meet();
}

void FullyShard::free_buffers() {
    for (BufferCycle* cycle : {&value_buffers_, &staging_buffers_, &gradient_buffers_, &unreduced_buffers_})
        cycle->free();
    if (!rounded_) return;
    rounded_->release();
    rounded_is_old_ = true;
}

}  // namespace tandem::trainer
