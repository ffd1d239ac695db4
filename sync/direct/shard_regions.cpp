#include "sync/direct/shard_regions.h"

#include <algorithm>
#include <cstring>

#include "common/error.h"
#include "sync/strategy/collectives.h"

namespace tandem::sync {
namespace {

std::vector<const std::byte*> addresses(const ShardRegions::Offer& offer) {
    std::vector<const std::byte*> result;
    for (const ConstSpan& shard : offer.shards) result.push_back(shard.bytes > 0 ? shard.data : nullptr);
    return result;
}

// Plain values as the bytes that a gather of texts takes.
template <typename T>
std::string packed(const std::vector<T>& values) {
    return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}
template <typename T>
std::vector<T> unpacked(const std::string& bytes) {
    std::vector<T> values(bytes.size() / sizeof(T));
    if (!values.empty()) std::memcpy(static_cast<void*>(values.data()), bytes.data(), bytes.size());
    return values;
}

}  // namespace

bool ShardRegions::changed(const Offer& offer) const {
    return addresses(offer) != noted_;
}

ShardRegions::Mine ShardRegions::find_on_cpu(const Offer& offer) const {
    Mine mine;
    const Span shared = world_.shared_memory().memory;
    for (std::size_t t = 0; t < offer.shards.size(); ++t) {
        const ConstSpan& shard = offer.shards[t];
        At& at = mine.at.emplace_back();
        if (shard.bytes == 0) continue;
        const bool inside = shared.bytes > 0 && shard.data >= shared.data &&
                            shard.data + shard.bytes <= shared.data + shared.bytes;
        enforce(inside,
                "tensor '{}' of rank {} does not lie in memory that an engine can map: allocate it from "
                "the communicator's memory(), or use mode gather",
                offer.names[t], world_.rank());
        at.offset = static_cast<std::uint64_t>(shard.data - shared.data);
    }
    return mine;
}

ShardRegions::Mine ShardRegions::find_on_gpu(const Offer& offer) const {
    Mine mine;
    for (std::size_t t = 0; t < offer.shards.size(); ++t) {
        const ConstSpan& shard = offer.shards[t];
        At& at = mine.at.emplace_back();
        if (shard.bytes == 0) continue;
        engine::RegionHandle handle;
        try {
            handle = engine::region_handle(device_, shard);
        } catch (const IpcRefused& error) {
            throw IpcRefused(
                fmt::format("tensor '{}' of rank {}: {}; allocate it in an ExportArena or from "
                            "the communicator's memory(device), or use mode gather",
                            offer.names[t], world_.rank(), error.what()));
        }
        at.offset = handle.offset;
        handle.address -= handle.offset;  // the whole allocation
        handle.offset = 0;
        const auto known = std::find(mine.allocations.begin(), mine.allocations.end(), handle);
        at.region = static_cast<std::uint32_t>(known - mine.allocations.begin());
        if (known == mine.allocations.end()) mine.allocations.push_back(handle);
    }
    return mine;
}

void ShardRegions::note(const Offer& offer, PushStatus& status) {
    Mine mine;
    try {
        mine = device_.type == DeviceType::cpu ? find_on_cpu(offer) : find_on_gpu(offer);
    } catch (const std::exception& error) {
        status.fail("plan", fmt::format("rank {}", world_.rank()), -1, error.what());
        mine = {{}, std::vector<At>(offer.shards.size())};
    }
    tensors_ = offer.shards.size();
    noted_ = addresses(offer);
    at_.clear();
    regions_.clear();
    const auto offsets = gather_texts(world_, packed(mine.at));
    const auto allocations = gather_texts(world_, packed(mine.allocations));
    for (std::size_t rank = 0; rank < offsets.size(); ++rank) {
        const auto first = static_cast<std::uint32_t>(regions_.size());
        for (At at : unpacked<At>(offsets[rank])) {
            at.region += first;
            at_.push_back(at);
        }
        for (const auto& handle : unpacked<engine::RegionHandle>(allocations[rank]))
            regions_.push_back({{nullptr, handle.allocation_bytes}, -1, device_, handle, {events_[rank]}});
    }
    if (device_.type == DeviceType::cpu) {
        const comm::SharedMemory shared = world_.shared_memory();
        regions_ = {{shared.memory, shared.fd}};
    }
}

}  // namespace tandem::sync
