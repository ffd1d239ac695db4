#include "sync/gather/staging.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

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

}  // namespace

std::size_t Staging::slot_bytes(std::size_t used, std::size_t asked) {
    return std::min((std::max<std::size_t>(used, 1) + kPage - 1) / kPage * kPage, asked);
}

std::size_t Staging::piece_bytes(std::size_t bucket_bytes) {
    return std::clamp(bucket_bytes / 8, std::size_t{64} << 10, std::size_t{1} << 20);
}

Staging Staging::share(comm::Communicator& world, int slots, std::size_t slot_bytes, std::string_view tag) {
    const std::size_t bytes = static_cast<std::size_t>(slots) * slot_bytes;
    SharedArena arena;
    std::string address;
    Health health;
    try {
        if (world.rank() == 0) {
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
        if (world.rank() != 0 && !address.empty()) arena = open_arena(address, bytes);
    } catch (const std::exception& error) {
        health.fail("staging", "rank 0", -1, error.what());
    }
    agree(world, health, "sync set-up");
    return Staging(std::move(arena));
}

}  // namespace tandem::sync
