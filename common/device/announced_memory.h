// Memory without a name that a process tells others of by a path, /proc/PID/fd/FD. The path comes from outside: what is
// opened is shared memory of this process's own user, or nothing.
#pragma once

#include <cstddef>
#include <string>

#include "common/device/shared_arena.h"

namespace tandem {

// "/proc/PID/fd/FD" of this process's descriptor: valid while that is open.
std::string announced_path(int fd);

// A descriptor, which the caller closes, of the memory behind `path`, readable and writable. Throws BadInput when the
// path has another form or leads to anything but a memfd of this user whose size is sealed (what it leads to is then
// not opened, be it a FIFO or a device), SystemError when it cannot be reached.
int open_announced(const std::string& path);

// The same as an arena. Throws BadInput also when it has another size than `bytes`.
SharedArena open_announced_arena(const std::string& path, std::size_t bytes);

}  // namespace tandem
