#include "engine_adapter/receiver/attachment.h"

#include <algorithm>

#include "engine_adapter/receiver/coverage.h"

namespace tandem::engine {
namespace {

// found.size() where there is none.
std::size_t first_difference(std::span<const ops::Checksum> found, std::span<const ops::Checksum> checksums) {
    std::size_t i = 0;
    while (i < found.size() && found[i] == checksums[i]) ++i;
    return i;
}

}  // namespace

Attachment::Attachment(std::vector<MappedRegion> regions, TransferPlan plan,
                       const std::vector<WeightSlot>& weights)
    : weights_(weights),
      regions_(std::make_shared<std::vector<MappedRegion>>(std::move(regions))),
      plan_(std::move(plan)),
      places_(weights.size()) {
    for (const MappedRegion& region : *regions_)
        written_.insert(written_.end(), region.written.begin(), region.written.end());
    std::vector<TensorInfo> tensors;
    for (const WeightSlot& weight : weights) tensors.push_back(weight.info);
    std::vector<std::uint64_t> sizes;
    for (const MappedRegion& region : *regions_) sizes.push_back(region.memory.bytes);
    check_plan(tensors, sizes, plan_);
    for (const Transfer& t : plan_.transfers) {
        Place& place = places_[t.tensor];
        if (place.first == nullptr) place.first = &t;
        const bool fits = t.from_dtype == weights_[t.tensor].info.dtype && t.region == place.first->region &&
                          (t.rows == 1 || t.from_stride == t.to_stride) &&
                          t.from - t.to == place.first->from - place.first->to;
        if (!fits && place.misfit == nullptr) place.misfit = &t;
    }
}

void Attachment::require_inside(std::size_t region, std::uint64_t offset, std::uint64_t bytes) const {
    if (region >= regions_->size()) throw ProtocolError(fmt::format("there is no region {}", region));
    const std::size_t size = (*regions_)[region].memory.bytes;
    if (bytes > size || offset > size - bytes) {
        throw ProtocolError(fmt::format("{} bytes at {} are not inside the {} bytes of region {}", bytes,
                                        offset, size, region));
    }
}

ConstSpan Attachment::bytes_of(std::size_t region, std::uint64_t offset, std::uint64_t bytes) const {
    require_mapped();
    require_inside(region, offset, bytes);
    return ConstSpan((*regions_)[region].memory).subspan(offset, bytes);
}

bool Attachment::mapped() const {
    return std::all_of(regions_->begin(), regions_->end(),
                       [](const MappedRegion& region) { return region.memory.data != nullptr; });
}

void Attachment::require_mapped() const {
    if (!mapped())
        throw ProtocolError("the trainer's memory is not mapped here: its bytes come over NCCL or TCP");
}

ops::CopyItem Attachment::copy_of(const Transfer& t, const BucketReceiver::Arrived* from) const {
    const WeightSlot& weight = weights_[t.tensor];
    ops::CopyItem item;
    item.from_dtype = t.from_dtype;
    item.to_dtype = weight.info.dtype;
    const std::byte* const data = from != nullptr ? from->data : (*regions_)[t.region].memory.data + t.from;
    item.from = {data, t.row_elements * dtype_size(item.from_dtype)};
    item.to = weight.memory.subspan(t.to, t.row_elements * dtype_size(item.to_dtype));
    item.rows = static_cast<std::int64_t>(t.rows);
    item.from_stride = from != nullptr ? from->stride : t.from_stride;
    item.to_stride = t.to_stride;
    return item;
}

void Attachment::load(std::size_t bucket, std::span<const ops::Checksum> checksums, WeightWriter& writer,
                      BucketReceiver* receiver) const {
    const std::span<const Transfer> transfers = plan_.bucket(bucket);
    const auto item = [&](std::size_t i) {
        if (receiver == nullptr) return copy_of(transfers[i]);
        const BucketReceiver::Arrived arrived = receiver->at(i, transfers[i]);
        return copy_of(transfers[i], &arrived);
    };
    WeightWriter::Core core;
    if (!plan_.cores.empty() && receiver == nullptr)
        core = [&](std::size_t i) { return static_cast<int>(plan_.cores[transfers[i].source_rank]); };
    const auto& found = writer.write_all(device(), transfers.size(), item, receiver, written_, core);
    if (const std::size_t i = first_difference(found, checksums); i < transfers.size()) {
        throw ProtocolError(
            fmt::format("bucket {}: {} is corrupted: its checksum is {}, the rank announced {}", bucket,
                        describe(transfers[i]), ops::to_hex(found[i]), ops::to_hex(checksums[i])));
    }
}

std::vector<int> Attachment::relay_cores() const {
    if (device().type != DeviceType::cpu || !mapped()) return {};
    return distinct_cores(plan_.cores);
}

void Attachment::relay(const RelayOrder& order, WeightWriter& writer,
                       std::vector<ops::Checksum>& found) const {
    found.resize(plan_.transfers.size());
    take_relayed(order, plan_.cores, plan_.buckets(), writer, [&](std::size_t bucket, std::size_t rank) {
        for (std::uint64_t i = plan_.first[bucket]; i < plan_.first[bucket + 1]; ++i) {
            if (plan_.transfers[i].source_rank != rank) continue;
            ops::CopyItem item = copy_of(plan_.transfers[i]);
            item.checksum = &found[i];
            writer.write(item);
        }
    });
}

void Attachment::compare(std::span<const ops::Checksum> found,
                         std::span<const ops::Checksum> checksums) const {
    if (const std::size_t i = first_difference(found, checksums); i < found.size()) {
        throw ProtocolError(fmt::format("{} is corrupted: its checksum is {}, the rank announced {}",
                                        describe(plan_.transfers[i]), ops::to_hex(found[i]),
                                        ops::to_hex(checksums[i])));
    }
}

void Attachment::verify(std::span<const ops::Checksum> checksums, WeightWriter& writer) const {
    const std::vector<Transfer>& transfers = plan_.transfers;
    const auto& found =
        writer.checksums(transfers.size(), [&](std::size_t i) { return reading_of(transfers[i]); });
    if (const std::size_t i = first_difference(found, checksums); i < transfers.size()) {
        throw ProtocolError(fmt::format("{} differs: the engine holds {}, the trainer {}",
                                        describe(transfers[i]), ops::to_hex(found[i]),
                                        ops::to_hex(checksums[i])));
    }
}

ops::CopyItem Attachment::reading_of(const Transfer& t) const {
    ops::CopyItem item = copy_of(t);
    item.from = item.to;
    item.to.data = nullptr;
    item.from_dtype = item.to_dtype;
    item.from_stride = t.to_stride;
    return item;
}

std::vector<Span> Attachment::in_place(std::uint64_t shift) const {
    require_mapped();
    std::vector<Span> result;
    result.reserve(weights_.size());
    for (std::size_t i = 0; i < weights_.size(); ++i) {
        const WeightSlot& weight = weights_[i];
        const Place& place = places_[i];
        if (place.first == nullptr) {  // a tensor of no bytes
            result.push_back(weight.memory);
            continue;
        }
        if (place.misfit != nullptr) {
            throw ProtocolError(describe(*place.misfit) +
                                " does not lie in one piece with its tensor: it cannot be read in place");
        }
        const Span region = (*regions_)[place.first->region].memory;
        // A transfer starts with the tensor's first byte, so the difference is not negative.
        const std::uint64_t start = place.first->from - place.first->to;
        const std::uint64_t space = region.bytes - start;  // the tensor fits there without a shift
        if (shift > space || weight.memory.bytes > space - shift ||
            shift % dtype_size(weight.info.dtype) != 0) {
            throw ProtocolError(fmt::format("tensor '{}' of {} bytes does not lie at {} + {} of region {}",
                                            weight.info.name, weight.memory.bytes, start, shift,
                                            place.first->region));
        }
        result.push_back(region.subspan(start + shift, weight.memory.bytes));
    }
    return result;
}

std::string Attachment::describe(const Transfer& transfer) const {
    return engine::describe(weights_[transfer.tensor].info, transfer);
}

}  // namespace tandem::engine
