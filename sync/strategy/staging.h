// Memory of one host that every trainer rank writes and the engines read: one SharedArena, or one ExportArena
// on a GPU, that rank 0 makes and the others map. Touched once, reused for every later sync. Counted under
// the tag "staging" by its maker. Ranks on other hosts than rank 0's have memory of their own of the same
// layout, and send what they wrote.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/comm/communicator.h"
#include "common/device/shared_arena.h"
#include "engine_adapter/engine.h"

namespace tandem::sync {

class Staging {
  public:
    // Collective. Throws SyncError on every rank alike.
    static Staging share(comm::Communicator& world, Device device, int slots, std::size_t slot_bytes,
                         std::string_view tag = "staging");

    Span memory() const { return region_.memory; }
    const engine::Region& region() const { return region_; }    // for engines; on rank 0
    const std::vector<int>& remote() const { return remote_; }  // ranks on other hosts than rank 0's

  private:
    Staging() = default;
    std::string make(Device device, std::size_t bytes, std::string_view tag);  // how the others find it
    void map(Device device, const std::string& address, std::size_t bytes);
    SharedArena arena_;
    ExportArena gpu_arena_;
    engine::MappedRegion mapped_;
    engine::Region region_;
    std::vector<int> remote_;
};

}  // namespace tandem::sync
