#include "sync/gather/staging.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "common/comm/host_identity.h"
#include "common/error.h"
#include "sync/push/agree.h"

namespace tandem::sync {
namespace {

constexpr std::size_t kPage = 4096;

// "/proc/PID/fd/FD": how a process of the same user reaches rank 0's memory.
std::string address_of(const SharedArena& arena) {
    return fmt::format("/proc/{}/fd/{}", ::getpid(), arena.fd());
}

SharedArena open_arena(const std::string& address, std::size_t bytes) {
    const int fd = ::open(address.c_str(), O_RDWR | O_CLOEXEC);
    if (fd < 0) throw SystemError("open of the staging arena " + address, errno);
    return SharedArena::open(fd, bytes);
}

// Collective.
std::vector<int> ranks_away_from_rank_0(comm::Communicator& world) {
    std::array<char, 160> own{};
    const std::string identity = comm::host_identity();
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

std::size_t Staging::slot_bytes(std::size_t used, std::size_t asked) {
    return std::min((std::max<std::size_t>(used, 1) + kPage - 1) / kPage * kPage, asked);
}

std::size_t Staging::piece_bytes(std::size_t bucket_bytes) {
    return std::clamp(bucket_bytes / 8, std::size_t{64} << 10, std::size_t{1} << 20);
}

Staging Staging::share(comm::Communicator& world, int slots, std::size_t slot_bytes, std::string_view tag,
                       Hosts hosts) {
    const std::size_t bytes = static_cast<std::size_t>(slots) * slot_bytes;
    SharedArena arena;
    std::string address;
    Health health;
    std::vector<int> away = ranks_away_from_rank_0(world);
    const bool distant = std::find(away.begin(), away.end(), world.rank()) != away.end();
    if (hosts == Hosts::one && !away.empty()) {
        health.fail(
            "staging", fmt::format("rank {}", away.front()), -1,
            "it is on another host than rank 0, and this mode needs all ranks on one: use mode gather");
    }
    agree(world, health, "sync set-up");
    try {
        if (world.rank() == 0 || distant) {
            require(slots > 0 && slot_bytes > 0, "staging of {} slots of {} bytes", slots, slot_bytes);
            arena = SharedArena::create(std::string(tag), bytes, tag);
            arena.touch();
            address = address_of(arena);
        }
    } catch (const std::exception& error) {
        health.fail("staging", "", -1, error.what());
    }
    address = broadcast_text(world, address);
    try {
        if (world.rank() != 0 && !distant && !address.empty()) arena = open_arena(address, bytes);
    } catch (const std::exception& error) {
        health.fail("staging", "rank 0", -1, error.what());
    }
    agree(world, health, "sync set-up");
    return Staging(std::move(arena), std::move(away));
}

}  // namespace tandem::sync
