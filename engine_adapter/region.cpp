#include "engine_adapter/region.h"

#include <unistd.h>

namespace tandem::engine {

RegionHandle region_handle(Device device, ConstSpan memory) {
    const ExportedRange range = export_range(device, memory);
    return {range.handle, range.offset, range.allocation_bytes, ::getpid(),
            reinterpret_cast<std::uint64_t>(memory.data)};
}

std::optional<MappedRegion> own_region(Device device, const RegionHandle& handle, std::size_t bytes) {
    if (handle.pid != ::getpid()) return std::nullopt;
    const Span memory{reinterpret_cast<std::byte*>(handle.address), bytes};
    try {
        // The sender may be another process with the same pid, in another container.
        const ExportedRange mine = export_range(device, memory);
        if (mine.handle != handle.handle || mine.offset != handle.offset) return std::nullopt;
    } catch (const IpcRefused&) {
        return std::nullopt;
    }
    return MappedRegion{memory, device, nullptr};
}

Span inside(const OpenedArena& allocation, const RegionHandle& handle, std::size_t bytes) {
    const std::size_t held = allocation.span().bytes;
    if (bytes > held || handle.offset > held - bytes) {
        throw IpcRefused(
            fmt::format("{} bytes at {} are not inside the allocation of {} bytes that was "
                        "exported",
                        bytes, handle.offset, held));
    }
    return allocation.span().subspan(handle.offset, bytes);
}

MappedRegion map_region(Device device, const RegionHandle& handle, std::size_t bytes) {
    if (auto own = own_region(device, handle, bytes)) return *own;
    auto arena =
        std::make_shared<OpenedArena>(OpenedArena::open(device, handle.handle, handle.allocation_bytes));
    return {inside(*arena, handle, bytes), device, arena};
}

}  // namespace tandem::engine
