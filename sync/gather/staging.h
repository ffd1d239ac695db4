// Memory of one host that every trainer rank writes and the engines read: one SharedArena that rank 0 makes
// and the others map. Touched once, reused for every later sync. Counted under the tag "staging" by its
// maker.
#pragma once

#include <string>
#include <string_view>

#include "common/comm/communicator.h"
#include "common/device/shared_arena.h"

namespace tandem::sync {

class Staging {
  public:
    // Collective. Throws SyncError on every rank alike.
    static Staging share(comm::Communicator& world, int slots, std::size_t slot_bytes,
                         std::string_view tag = "staging");
    // How large a slot is for buckets of at most `used` bytes: whole pages, but never above the bucket size
    // that was asked for.
    static std::size_t slot_bytes(std::size_t used, std::size_t asked);
    // What the engines' threads share a bucket by: several for each, and not so small that each costs.
    static std::size_t piece_bytes(std::size_t bucket_bytes);

    Span memory() const { return arena_.span(); }
    int fd() const { return arena_.fd(); }

  private:
    explicit Staging(SharedArena arena) : arena_(std::move(arena)) {}
    SharedArena arena_;
};

}  // namespace tandem::sync
