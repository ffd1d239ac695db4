// A rank's GPU: memory that peers of this host map, and their memory mapped here. Ranks that are threads of
// one process reach each other's memory as it is.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <vector>

#include "common/device/export.h"
#include "common/device/memory.h"

namespace tandem::comm::ipc {

// The location of a rank's bytes, in terms that a peer can map.
struct Place {
    IpcHandle handle{};  // of the arena
    std::uint64_t arena_bytes = 0;
    std::uint64_t offset = 0;   // in the arena
    std::uint64_t address = 0;  // in the process that holds them
    std::int32_t pid = 0;       // of that process; 0: nowhere that a peer reaches
    std::int32_t device = 0;    // there
};

// Grows by export arenas, which stay until trim(): peers have them mapped. Blocks are handed out again at
// once, so they follow the rules of device_pool(): used on the compute stream, or on one that waits for it.
class ArenaPool final : public MemoryPool {
  public:
    explicit ArenaPool(Device device) : device_(device) {}
    Device device() const override { return device_; }
    std::byte* allocate(std::size_t bytes) override;
    void release(std::byte* data, std::size_t bytes) noexcept override;
    Place place_of(ConstSpan memory) const;  // pid 0: not of this pool

    // Frees the arenas without a block in use; returns their bytes. No peer may have them mapped any more.
    std::size_t trim();

    Span arena_of(ConstSpan memory) const;  // the whole arena that holds it; empty: not of this pool

  private:
    struct Arena {
        ExportArena memory;
        mutable std::optional<IpcHandle> handle;  // asked for when a peer needs it
        std::unique_ptr<MemoryPool> blocks;
        int live = 0;  // blocks in use
    };
    const Arena* find(ConstSpan memory) const;

    const Device device_;
    mutable std::mutex mutex_;
    std::vector<Arena> arenas_;
};

class Gpu {
  public:
    explicit Gpu(Device device) : device_(device), pool_(device) {}
    Device device() const { return device_; }
    ArenaPool& pool() { return pool_; }
    // The peer's `bytes` bytes from byte `position` after the place on, mapped. Throws IpcRefused; ProtocolError when
    // they are not all in the peer's arena.
    const std::byte* reach(const Place& place, std::uint64_t position, std::uint64_t bytes);
    // Memory of the pool that a group's calls are staged through; empty at first, and again after forget().
    std::shared_ptr<Buffer> make_staging();
    // Releases what only later calls need: peers' memory, and the groups' staging. The GPU must be idle.
    void forget();

  private:
    const Device device_;
    ArenaPool pool_;
    std::mutex mutex_;
    std::map<IpcHandle, OpenedArena> opened_;
    std::vector<std::weak_ptr<Buffer>> stagings_;
    std::set<int> reached_;  // other GPUs of this process
};

// An event, as a rank offers it to its peers.
struct EventOffer {
    IpcHandle handle{};
    std::int32_t pid = 0;
};

// An event of each member of a group, which the others' streams wait for. One is recorded again only when
// all of them have asked for the wait on what it marked before.
class SyncEvents {
  public:
    SyncEvents(Device device, int size, int self);
    SyncEvents(const SyncEvents&) = delete;
    SyncEvents& operator=(const SyncEvents&) = delete;

    EventOffer offer() const { return offer_; }
    void open(int member, const EventOffer& offer);  // once a member; idempotent
    void record(Stream& stream) { own_.record(stream); }
    void wait(Stream& stream, int member) const;  // of another member, opened before
    void wait_all(Stream& stream) const;

  private:
    Device device_;
    SharedEvent own_;
    EventOffer offer_;
    std::vector<std::optional<SharedEvent>> members_;
    int self_;
};

}  // namespace tandem::comm::ipc
