// The trainer's GPU memory, opened: each allocation once, and kept until the trainer lets go of it.
#pragma once

#include <map>
#include <memory>

#include "engine_adapter/region.h"

namespace tandem::engine {

class IpcHandleCache {
  public:
    // Throws IpcRefused.
    MappedRegion map(Device device, const RegionHandle& handle, std::size_t bytes);
    // Those of other processes; in this one whoever speaks of a bucket has waited for it. Throws IpcRefused.
    std::vector<SharedEvent> open(Device device, const std::vector<RegionEvent>& events);
    // What somebody still reads stays open for as long.
    void clear() {
        opened_.clear();
        events_.clear();
    }

  private:
    std::map<IpcHandle, std::shared_ptr<OpenedArena>> opened_;
    std::map<IpcHandle, SharedEvent> events_;
};

}  // namespace tandem::engine
