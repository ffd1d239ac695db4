// The trainer's GPU memory: each allocation is opened once and kept until the trainer releases it.
#pragma once

#include <map>
#include <memory>

#include "engine_adapter/region.h"

namespace tandem::engine {

class IpcHandleCache {
  public:
    // Throws IpcRefused.
    MappedRegion map(Device device, const RegionHandle& handle, std::size_t bytes);
    // Events of other processes; a trainer in this one has waited before it announces a bucket. Throws
    // IpcRefused.
    std::vector<SharedEvent> open(Device device, const std::vector<RegionEvent>& events);
    // What is still read stays open until then.
    void clear() {
        opened_.clear();
        events_.clear();
    }

  private:
    std::map<IpcHandle, std::shared_ptr<OpenedArena>> opened_;
    std::map<IpcHandle, SharedEvent> events_;
};

}  // namespace tandem::engine
