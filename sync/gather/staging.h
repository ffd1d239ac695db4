// The staging arena of one host: one SharedArena that trainer rank 0 makes, every trainer rank of the host
// maps, and the engine maps too. Touched once, reused for every later sync. Counted under the tag "staging".
#pragma once

#include <string>

#include "common/device/shared_arena.h"
#include "engine_adapter/engine.h"

namespace tandem::sync {

class Staging {
  public:
    static Staging create(int slots, std::size_t slot_bytes);
    // Maps the arena at another process's (or this one's) address(). Valid while its maker lives.
    static Staging open(const std::string& address, int slots, std::size_t slot_bytes);

    // "/proc/PID/fd/FD": how a process of the same user reaches the memory.
    std::string address() const;
    const engine::StagingArea& area() const { return area_; }

  private:
    Staging(SharedArena arena, int slots, std::size_t slot_bytes);
    SharedArena arena_;
    engine::StagingArea area_;
};

}  // namespace tandem::sync
