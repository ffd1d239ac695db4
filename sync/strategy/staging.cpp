#include "sync/strategy/staging.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "common/align.h"
#include "common/device/announced_memory.h"
#include "common/error.h"
#include "common/identity/host_identity.h"
#include "sync/strategy/collectives.h"

namespace tandem::sync {
namespace {

// Collective.
std::vector<int> ranks_away_from_rank_0(comm::Communicator& world) {
    std::array<char, 160> own{};
    const std::string identity = host_identity();
    identity.copy(own.data(), own.size() - 1);
    std::vector<std::array<char, 160>> all(static_cast<std::size_t>(world.size()));
    world.all_gather({reinterpret_cast<const std::byte*>(own.data()), own.size()},
                     {reinterpret_cast<std::byte*>(all.data()), all.size() * own.size()});
    std::vector<int> away;
    for (std::size_t rank = 1; rank < all.size(); ++rank) {
        if (all[rank] != all[0]) away.push_back(static_cast<int>(rank));
    }
    return away;
}

}  // namespace

std::string Staging::make(Device device, std::size_t bytes, std::string_view tag) {
    if (device.type == DeviceType::cpu) {
        arena_ = SharedArena::create(std::string(tag), bytes, tag);
        arena_.touch();
        region_ = {arena_.span(), arena_.fd()};
        return announced_path(arena_.fd());
    }
    gpu_arena_ = ExportArena::create(device, bytes, tag);
    const engine::RegionHandle handle = engine::region_handle(device, gpu_arena_.span());
    region_ = {gpu_arena_.span(), -1, device, handle};
    return {reinterpret_cast<const char*>(&handle), sizeof(handle)};
}

void Staging::map(Device device, const std::string& address, std::size_t bytes) {
    if (device.type == DeviceType::cpu) {
        arena_ = open_announced_arena(address, bytes);
        region_ = {arena_.span(), arena_.fd()};
        return;
    }
    engine::RegionHandle handle;
    enforce(address.size() == sizeof(handle), "rank 0 announces a region of a GPU in {} bytes instead of {}",
            address.size(), sizeof(handle));
    std::memcpy(static_cast<void*>(&handle), address.data(), sizeof(handle));
    mapped_ = engine::map_region(device, handle, bytes);
    region_ = {mapped_.memory, -1, device, handle};
}

Staging Staging::share(comm::Communicator& world, Device device, int slots, std::size_t slot_bytes,
                       std::string_view tag) {
    const std::size_t bytes = static_cast<std::size_t>(slots) * slot_bytes;
    Staging staging;
    std::string address;
    PushStatus status;
    std::vector<int> away = ranks_away_from_rank_0(world);
    const bool remote = std::find(away.begin(), away.end(), world.rank()) != away.end();
    try {
        if (world.rank() == 0 || remote) {
            enforce(slots > 0 && slot_bytes > 0, "staging of {} slots of {} bytes", slots, slot_bytes);
            address = staging.make(device, bytes, tag);
        }
    } catch (const std::exception& error) {
        status.fail("staging", "", -1, error.what());
    }
    address = broadcast_text(world, address);
    try {
        if (world.rank() != 0 && !remote && !address.empty()) staging.map(device, address, bytes);
    } catch (const std::exception& error) {
        status.fail("staging", "rank 0", -1, error.what());
    }
    throw_on_any_failure(world, status, "sync set-up");
    staging.remote_ = std::move(away);
    return staging;
}

}  // namespace tandem::sync
