#include "engine_adapter/receiver/offered_regions.h"

#include <memory>

#include "common/device/shared_arena.h"
#include "common/error.h"
#include "engine_adapter/channel/messages.h"
#include "engine_adapter/transport/cuda_ipc/messages.h"

namespace tandem::engine {
namespace {

constexpr std::int64_t kMaxRegionBytes = std::int64_t{1} << 46;

std::vector<MappedRegion> map_on_cpu(const OfferedRegions& offered, std::vector<FileDescriptor>& fds) {
    std::vector<MappedRegion> regions;
    for (std::size_t i = 0; i < offered.sizes.size(); ++i) {
        auto arena = std::make_shared<SharedArena>(
            SharedArena::open_read_only(fds[i].release(), static_cast<std::size_t>(offered.sizes[i])));
        regions.push_back({arena->span(), {}, arena});
    }
    return regions;
}

std::vector<MappedRegion> map_on_gpu(const OfferedRegions& offered, const nlohmann::json& handles,
                                     VersionUpdate& update) {
    if (!handles.is_array() || handles.size() != offered.sizes.size())
        throw MalformedMessage(fmt::format("attach of {} regions with other handles", offered.sizes.size()));
    std::vector<MappedRegion> regions;
    for (std::size_t i = 0; i < offered.sizes.size(); ++i) {
        regions.push_back(update.map(messages::region_handle_from_json(handles[i]),
                                     static_cast<std::size_t>(offered.sizes[i]),
                                     messages::region_events_from_json(handles[i])));
    }
    return regions;
}

}  // namespace

OfferedRegions offered_by(const Message& message) {
    OfferedRegions offered;
    offered.sizes = messages::integers_field(message.header, "regions", 1);
    for (const std::int64_t bytes : offered.sizes) {
        if (bytes > kMaxRegionBytes)
            throw MalformedMessage(fmt::format("attach of a region of {} bytes", bytes));
    }
    if (message.header.contains("nccl")) {
        offered.way = Way::nccl;
    } else if (message.header.contains("tcp")) {
        offered.way = Way::tcp;
    } else if (message.header.contains("gpu")) {
        offered.on_gpu = true;
    } else if (offered.sizes.size() != message.fds.size()) {
        throw MalformedMessage(fmt::format("attach of {} regions with {} file descriptors",
                                           offered.sizes.size(), message.fds.size()));
    }
    return offered;
}

std::vector<MappedRegion> map_offered(const OfferedRegions& offered, Message& message,
                                      VersionUpdate& update) {
    return offered.on_gpu ? map_on_gpu(offered, message.header.at("gpu"), update)
                          : map_on_cpu(offered, message.fds);
}

std::vector<MappedRegion> leave_unmapped(const OfferedRegions& offered, Device device) {
    std::vector<MappedRegion> regions;
    for (const std::int64_t bytes : offered.sizes)
        regions.push_back({{nullptr, static_cast<std::size_t>(bytes)}, device, nullptr});
    return regions;
}

}  // namespace tandem::engine
