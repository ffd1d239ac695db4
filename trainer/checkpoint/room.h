// Room on the disk for what a run must not lose: looked at beforehand, kept where the file system can, and
// waited for where a write finds none.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>

#include "common/comm/communicator.h"
#include "common/error.h"
#include "common/file_descriptor.h"

namespace tandem::trainer {

// The disk, or what this user may have of it, is full.
class NoRoom : public SystemError {
  public:
    using SystemError::SystemError;
    static bool is(int error_number);  // ENOSPC, EDQUOT
};

// Bytes that this user may still write to the file system of a folder. Throws SystemError.
std::uint64_t room_in(const std::string& folder);

// Throws NoRoom where there are less.
void need_room(const std::string& folder, std::uint64_t bytes);

// Bytes of a file system that nobody else gets while it lives: a file without a name, which ends with the
// process.
class Reserve {
  public:
    Reserve() = default;
    // Throws NoRoom where there is less. Keeps nothing on a file system that cannot (held() is then false).
    Reserve(const std::string& folder, std::uint64_t bytes);
    bool held() const { return static_cast<bool>(file_); }
    void release() { file_.reset(); }

  private:
    FileDescriptor file_;
};

// Collective: each rank does its part, and goes on when all have. When a rank's part finds no room, every
// rank throws NoRoom. A part that fails in another way throws on its rank alone; the others wait until that
// rank ends the job.
void together(comm::Communicator& world, const std::function<void()>& part);

struct RoomWait {
    std::string what;         // "the checkpoint": for the log
    std::string folder;       // that it goes to
    std::uint64_t bytes = 0;  // that it takes
    double limit_s = 0;       // from the first failure on
    double look_every_s = 1;  // a free disk is seen so soon
    double say_every_s = 60;
};

// Collective. `attempt` is collective too, throws NoRoom on all ranks or on none, and leaves nothing of what
// it wrote then. It is made again when there is room; what it writes stays in memory until then. Throws its
// NoRoom, with where and how many bytes are missing, when the limit has passed. Blocks so long, longer than
// the timeout of `world`.
void write_when_there_is_room(comm::Communicator& world, const RoomWait& wait,
                              const std::function<void()>& attempt);

}  // namespace tandem::trainer
