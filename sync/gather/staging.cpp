#include "sync/gather/staging.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include "common/error.h"

namespace tandem::sync {

Staging::Staging(SharedArena arena, int slots, std::size_t slot_bytes) : arena_(std::move(arena)) {
    area_ = {arena_.span(), arena_.fd(), slots, slot_bytes};
}

Staging Staging::create(int slots, std::size_t slot_bytes) {
    require(slots > 0 && slot_bytes > 0, "staging of {} slots of {} bytes", slots, slot_bytes);
    SharedArena arena =
        SharedArena::create("staging", static_cast<std::size_t>(slots) * slot_bytes, "staging");
    arena.touch();
    return {std::move(arena), slots, slot_bytes};
}

Staging Staging::open(const std::string& address, int slots, std::size_t slot_bytes) {
    const int fd = ::open(address.c_str(), O_RDWR | O_CLOEXEC);
    if (fd < 0) throw SystemError("open of the staging arena " + address, errno);
    return {SharedArena::open(fd, static_cast<std::size_t>(slots) * slot_bytes), slots, slot_bytes};
}

std::string Staging::address() const {
    return fmt::format("/proc/{}/fd/{}", ::getpid(), arena_.fd());
}

}  // namespace tandem::sync
