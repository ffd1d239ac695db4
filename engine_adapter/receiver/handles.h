// The trainer's GPU memory, opened: each allocation once, and kept until the trainer lets go of it.
#pragma once

#include <map>
#include <memory>

#include "engine_adapter/region.h"

namespace tandem::engine {

class Handles {
  public:
    // Throws IpcRefused.
    MappedRegion map(Device device, const RegionHandle& handle, std::size_t bytes);
    // What somebody still reads stays open for as long.
    void clear() { opened_.clear(); }

  private:
    std::map<IpcHandle, std::shared_ptr<OpenedArena>> opened_;
};

}  // namespace tandem::engine
