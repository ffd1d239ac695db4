// Memory of the trainer that an engine maps, and how a GPU's memory is named to another process.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "common/device/device.h"
#include "common/device/export.h"

namespace tandem::engine {

// A range of a GPU's memory, as named to another process: the handle of its allocation, the offset in it, and
// the process that owns it (which cannot open its own handle, and need not). Plain bytes; travels as it is.
struct RegionHandle {
    IpcHandle handle{};
    std::uint64_t offset = 0;  // in the allocation
    std::uint64_t allocation_bytes = 0;
    std::int64_t pid = 0;
    std::uint64_t address = 0;  // in that process
    friend bool operator==(const RegionHandle&, const RegionHandle&) = default;
};
static_assert(sizeof(RegionHandle) == 96);

// An event that a process records on its stream behind what it writes into a region, before it says that a
// bucket is ready there. Plain bytes; travels as it is.
struct RegionEvent {
    IpcHandle handle{};
    std::int64_t pid = 0;  // of that process; 0: none
    friend bool operator==(const RegionEvent&, const RegionEvent&) = default;
};
static_assert(sizeof(RegionEvent) == 72);

// Borrowed: its owner keeps it for as long as an engine may read it (Engine::release).
struct Region {
    Span memory;  // this process's mapping; of a GPU's only its size counts where `handle` is set
    int fd = -1;  // of the shared memory behind it, for engines of the same host; -1: none
    Device device = {};
    std::optional<RegionHandle> handle = {};  // of a GPU's memory that another process holds
    std::vector<RegionEvent> written = {};    // a GPU's: of each process that writes it
};

// The handle of memory that this process allocated on the GPU. Throws IpcRefused.
RegionHandle region_handle(Device device, ConstSpan memory);

// Another process's memory on this one's device, or this process's own. Never frees it.
struct MappedRegion {
    Span memory;
    Device device;
    std::shared_ptr<const void> owner;      // keeps it mapped; null: this process's own
    std::vector<SharedEvent> written = {};  // of other processes: reads come behind them
};

// This process's own memory when the handle names that, and it is still exported.
std::optional<MappedRegion> own_region(Device device, const RegionHandle& handle, std::size_t bytes);
// own_region, or else the other process's memory, whose allocation it opens. Throws IpcRefused.
MappedRegion map_region(Device device, const RegionHandle& handle, std::size_t bytes);
// `bytes` at the handle's offset of an allocation that is open. Throws IpcRefused: outside of it.
Span inside(const OpenedArena& allocation, const RegionHandle& handle, std::size_t bytes);

}  // namespace tandem::engine
