#include "engine_adapter/receiver/ipc_handle_cache.h"

#include <unistd.h>

namespace tandem::engine {

MappedRegion IpcHandleCache::map(Device device, const RegionHandle& handle, std::size_t bytes) {
    if (auto own = own_region(device, handle, bytes)) return *own;
    std::shared_ptr<OpenedArena>& arena = opened_[handle.handle];
    if (!arena) {
        try {
            arena = std::make_shared<OpenedArena>(
                OpenedArena::open(device, handle.handle, handle.allocation_bytes));
        } catch (...) {
            opened_.erase(handle.handle);
            throw;
        }
    }
    return {inside(*arena, handle, bytes), device, arena};
}

std::vector<SharedEvent> IpcHandleCache::open(Device device, const std::vector<RegionEvent>& events) {
    std::vector<SharedEvent> result;
    for (const RegionEvent& event : events) {
        if (event.pid == 0 || event.pid == ::getpid()) continue;
        auto known = events_.find(event.handle);
        if (known == events_.end())
            known = events_.emplace(event.handle, SharedEvent::open(device, event.handle)).first;
        result.push_back(known->second);
    }
    return result;
}

}  // namespace tandem::engine
