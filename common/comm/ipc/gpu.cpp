#include "common/comm/ipc/gpu.h"

#include <unistd.h>

#include <algorithm>

#include "common/device/devices.h"
#include "common/error.h"

namespace tandem::comm::ipc {
namespace {

constexpr std::size_t kArenaBytes = std::size_t{64} << 20;  // at least

// Events of this process by their handles, for ranks that are threads of it: a process cannot open its own.
// They stay: a rank may ask for the event of one that has ended.
struct OwnEvents {
    std::mutex mutex;
    std::map<IpcHandle, SharedEvent> by_handle;
};

OwnEvents& own_events() {
    static auto* instance = new OwnEvents;
    return *instance;
}

}  // namespace

const ArenaPool::Arena* ArenaPool::find(ConstSpan memory) const {
    for (const Arena& arena : arenas_) {
        const Span all = arena.memory.span();
        const auto offset =
            reinterpret_cast<std::uintptr_t>(memory.data) - reinterpret_cast<std::uintptr_t>(all.data);
        if (offset < all.bytes && memory.bytes <= all.bytes - offset) return &arena;
    }
    return nullptr;
}

std::byte* ArenaPool::allocate(std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    for (Arena& arena : arenas_) {
        try {
            std::byte* data = arena.blocks->allocate(bytes);
            ++arena.live;
            return data;
        } catch (const OutOfMemory&) {
            continue;  // the next one may have room
        }
    }
    Arena arena;
    arena.memory = ExportArena::create(device_, std::max(bytes + 256, kArenaBytes), "");
    arena.blocks = make_range_pool(arena.memory.span(), "export arena", device_);
    std::byte* data = arena.blocks->allocate(bytes);
    arena.live = 1;
    arenas_.push_back(std::move(arena));
    return data;
}

void ArenaPool::release(std::byte* data, std::size_t bytes) noexcept {
    const std::lock_guard lock(mutex_);
    for (Arena& arena : arenas_) {
        if (find({data, 1}) != &arena) continue;
        arena.blocks->release(data, bytes);
        --arena.live;
        return;
    }
}

std::size_t ArenaPool::trim() {
    const std::lock_guard lock(mutex_);
    std::size_t bytes = 0;
    for (const Arena& arena : arenas_) bytes += arena.live == 0 ? arena.memory.bytes() : 0;
    arenas_.erase(std::remove_if(arenas_.begin(), arenas_.end(), [](const Arena& a) { return a.live == 0; }),
                  arenas_.end());
    return bytes;
}

Place ArenaPool::place_of(ConstSpan memory) const {
    const std::lock_guard lock(mutex_);
    const Arena* arena = find(memory);
    if (arena == nullptr) return {};
    Place place;
    if (!arena->handle) arena->handle = arena->memory.handle();
    place.handle = *arena->handle;
    place.arena_bytes = arena->memory.bytes();
    place.offset = static_cast<std::uint64_t>(memory.data - arena->memory.data());
    place.address = reinterpret_cast<std::uintptr_t>(memory.data);
    place.pid = ::getpid();
    place.device = device_.index;
    return place;
}

Span ArenaPool::arena_of(ConstSpan memory) const {
    const std::lock_guard lock(mutex_);
    const Arena* arena = memory.bytes == 0 ? nullptr : find(memory);
    return arena == nullptr ? Span{} : arena->memory.span();
}

const std::byte* Gpu::reach(const Place& place, std::uint64_t position, std::uint64_t bytes) {
    const std::uint64_t size = place.arena_bytes;
    if (place.offset > size || position > size - place.offset || bytes > size - place.offset - position) {
        throw ProtocolError(
            fmt::format("a peer names {} bytes at {} + {} of its memory on the GPU, which has {}", bytes,
                        place.offset, position, size));
    }
    const std::lock_guard lock(mutex_);
    if (place.pid == ::getpid()) {
        if (place.device != device_.index && reached_.count(place.device) == 0) {
            enable_peer_access(device_, {DeviceType::cuda, place.device});
            reached_.insert(place.device);
        }
        return reinterpret_cast<const std::byte*>(place.address) + position;
    }
    OpenedArena& arena = opened_[place.handle];
    if (arena.span().data == nullptr) arena = OpenedArena::open(device_, place.handle, place.arena_bytes);
    if (arena.span().bytes < size) throw ProtocolError("a peer's memory on the GPU is shorter than it was");
    return arena.span().data + place.offset + position;
}

std::shared_ptr<Buffer> Gpu::make_staging() {
    auto staging = std::make_shared<Buffer>();
    const std::lock_guard lock(mutex_);
    stagings_.push_back(staging);
    return staging;
}

void Gpu::forget() {
    const std::lock_guard lock(mutex_);
    opened_.clear();
    for (const auto& one : stagings_) {
        if (const auto staging = one.lock()) *staging = Buffer();
    }
}

SyncEvents::SyncEvents(Device device, int size, int self)
    : device_(device),
      own_(SharedEvent::create(device)),
      members_(static_cast<std::size_t>(size)),
      self_(self) {
    offer_ = {own_.handle(), ::getpid()};
    OwnEvents& all = own_events();
    const std::lock_guard lock(all.mutex);
    all.by_handle[offer_.handle] = own_;
}

void SyncEvents::open(int member, const EventOffer& offer) {
    auto& event = members_[static_cast<std::size_t>(member)];
    if (event || member == self_) return;
    if (offer.pid != ::getpid()) {
        event = SharedEvent::open(device_, offer.handle);
        return;
    }
    OwnEvents& all = own_events();
    const std::lock_guard lock(all.mutex);
    const auto found = all.by_handle.find(offer.handle);
    require(found != all.by_handle.end(), "an event of this process is gone: its rank has ended");
    event = found->second;
}

void SyncEvents::wait(Stream& stream, int member) const {
    members_[static_cast<std::size_t>(member)]->wait(stream);
}

void SyncEvents::wait_all(Stream& stream) const {
    for (int member = 0; member < static_cast<int>(members_.size()); ++member) {
        if (member != self_) wait(stream, member);
    }
}

}  // namespace tandem::comm::ipc
