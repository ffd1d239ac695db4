#include "trainer/checkpoint/room.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <optional>
#include <system_error>
#include <thread>

#include "common/log.h"
#include "common/stopwatch.h"

namespace tandem::trainer {
namespace {

constexpr double kLongestPause_s = 60;

// The errno of a failure for want of room; 0: another failure.
int lack_of_room(const std::exception& error) {
    int number = 0;
    if (const auto* system = dynamic_cast<const SystemError*>(&error)) number = system->error_number();
    if (const auto* standard = dynamic_cast<const std::system_error*>(&error))
        number = standard->code().value();
    return NoRoom::is(number) ? number : 0;
}

std::uint64_t missing_bytes(const RoomWait& wait) {
    const std::uint64_t there = room_in(wait.folder);
    return wait.bytes > there ? wait.bytes - there : 0;
}

// What all ranks do next, as rank 0 sees the disk.
enum class Next : std::int64_t { look_again, try_again, give_up };

class Waiting {
  public:
    Waiting(comm::Communicator& world, const RoomWait& wait) : world_(world), wait_(wait) {}

    // Returns when it is worth another attempt; false: the limit has passed.
    bool until_there_is_room(const NoRoom& failure) {
        ++failures_;
        const Stopwatch since_attempt;
        while (true) {
            auto next = static_cast<std::int64_t>(world_.rank() == 0 ? look(failure, since_attempt) : Next());
            world_.broadcast({reinterpret_cast<std::byte*>(&next), sizeof(next)}, 0);
            if (static_cast<Next>(next) != Next::look_again)
                return static_cast<Next>(next) == Next::try_again;
        }
    }
    double seconds() const { return watch_.seconds(); }

  private:
    Next look(const NoRoom& failure, const Stopwatch& since_attempt) {
        const double left = wait_.limit_s - watch_.seconds();
        if (left <= 0) return Next::give_up;
        const std::uint64_t missing = missing_bytes(wait_);
        if (!said_ || said_->seconds() >= wait_.say_every_s) {
            log_warn(
                "{}; {} needs {} bytes in {}, {} of them are missing: it stays in memory and waits for room, "
                "{:.0f} "
                "s more (checkpoint.wait_for_room_s)",
                failure.what(), wait_.what, wait_.bytes, wait_.folder, missing, left);
            said_.emplace();
        }
        // A quota is not seen in the room, so a failed attempt is made again less and less often.
        const double pause =
            std::min(wait_.look_every_s * std::pow(2.0, std::min(failures_ - 1, 16)), kLongestPause_s);
        if (missing == 0 && since_attempt.seconds() >= pause) return Next::try_again;
        std::this_thread::sleep_for(std::chrono::duration<double>(std::min(wait_.look_every_s, left)));
        return Next::look_again;
    }

    comm::Communicator& world_;
    const RoomWait& wait_;
    const Stopwatch watch_;
    std::optional<Stopwatch> said_;
    int failures_ = 0;
};

}  // namespace

bool NoRoom::is(int error_number) {
    return error_number == ENOSPC || error_number == EDQUOT;
}

std::uint64_t room_in(const std::string& folder) {
    struct statvfs disk {};
    if (::statvfs(folder.c_str(), &disk) != 0) throw SystemError("statvfs of " + folder, errno);
    return static_cast<std::uint64_t>(disk.f_bavail) * disk.f_frsize;
}

// Looked at before anything is allocated: an attempt would take the last of the disk for a moment.
void need_room(const std::string& folder, std::uint64_t bytes) {
    const std::uint64_t there = room_in(folder);
    if (there < bytes)
        throw NoRoom(fmt::format("{} has {} bytes left, {} are needed", folder, there, bytes), ENOSPC);
}

Reserve::Reserve(const std::string& folder, std::uint64_t bytes) {
    if (bytes == 0) return;
    need_room(folder, bytes);
    std::string name = folder + "/.room.XXXXXX";
    FileDescriptor file(::mkostemp(name.data(), O_CLOEXEC));
    if (!file) throw SystemError("create " + name, errno);
    ::unlink(name.c_str());
    if (::fallocate(file.get(), 0, 0, static_cast<off_t>(bytes)) == 0) {
        file_ = std::move(file);
    } else if (NoRoom::is(errno)) {
        throw NoRoom(fmt::format("keep {} bytes in {}", bytes, folder), errno);
    }
}

void together(comm::Communicator& world, const std::function<void()>& part) {
    std::int64_t failed = 0;
    std::string what;
    try {
        part();
    } catch (const std::exception& error) {
        failed = lack_of_room(error);
        if (failed == 0) throw;
        what = error.what();
    }
    std::int64_t worst = failed;
    world.all_reduce({reinterpret_cast<std::byte*>(&worst), sizeof(worst)}, DType::int64,
                     comm::ReduceOp::max);
    if (worst == 0) return;
    // The errno's own text ends what() already.
    const std::string own = what.substr(0, what.rfind(": "));
    throw NoRoom(failed != 0 ? own : "write of another rank", static_cast<int>(worst));
}

void write_when_there_is_room(comm::Communicator& world, const RoomWait& wait,
                              const std::function<void()>& attempt) {
    std::optional<Waiting> waiting;
    while (true) {
        try {
            attempt();
            if (waiting && world.rank() == 0)
                log_info("{} is written, after {:.0f} s", wait.what, waiting->seconds());
            return;
        } catch (const NoRoom& failure) {
            if (!waiting) waiting.emplace(world, wait);
            if (waiting->until_there_is_room(failure)) continue;
            throw NoRoom(
                fmt::format("{} needs {} bytes in {}, {} are missing, and no room came in {:.0f} s "
                            "(checkpoint.wait_for_room_s): {}",
                            wait.what, wait.bytes, wait.folder, missing_bytes(wait), wait.limit_s,
                            std::string(failure.what()).substr(0, std::string(failure.what()).rfind(": "))),
                failure.error_number());
        }
    }
}

}  // namespace tandem::trainer
