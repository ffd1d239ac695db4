#include "engine_adapter/receiver/handles.h"

namespace tandem::engine {

MappedRegion Handles::map(Device device, const RegionHandle& handle, std::size_t bytes) {
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

}  // namespace tandem::engine
