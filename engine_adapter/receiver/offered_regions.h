// The memory that a trainer's attach offers (channel/messages.h): how its bytes come, and its regions, mapped where they can be.
#pragma once

#include <cstdint>
#include <vector>

#include "engine_adapter/channel/channel.h"
#include "engine_adapter/receiver/version_update.h"

namespace tandem::engine {

enum class Way : std::uint8_t { mapped, nccl, tcp };

struct OfferedRegions {
    Way way = Way::mapped;
    bool on_gpu = false;              // and mapped
    std::vector<std::int64_t> sizes;  // bytes
};

// Throws MalformedMessage.
OfferedRegions offered_by(const Message& message);

// Takes the message's descriptors. Throws MalformedMessage, and what `update` throws, which maps those on a GPU.
std::vector<MappedRegion> map_offered(const OfferedRegions& offered, Message& message, VersionUpdate& update);

// Those whose bytes are received.
std::vector<MappedRegion> leave_unmapped(const OfferedRegions& offered, Device device);

}  // namespace tandem::engine
