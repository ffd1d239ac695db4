// Buffer and the per-tag statistics: what is the same on every device.
#include "common/device/memory.h"

#include <array>
#include <atomic>
#include <mutex>
#include <utility>

#include "common/device/memory_stats.h"
#include "common/error.h"

namespace tandem {
namespace {

constexpr int kMaxTags = 256;
constexpr std::string_view kNoPhase = "other";  // before the first, and between two

// --- counters by tag, and the peaks of phases

struct TagCounters {
    std::atomic<std::uint64_t> live{0};
    std::atomic<std::uint64_t> peak{0};
    std::atomic<std::uint64_t> allocations{0};
};

struct Phase {
    std::uint64_t peak = 0;
    std::array<std::uint64_t, kMaxTags> by_tag{};  // at the peak
};

struct Registry {
    std::mutex mutex;
    std::map<std::string, int, std::less<>> tags;
    std::array<TagCounters, kMaxTags> counters;
    std::atomic<std::uint64_t> live{0};

    std::mutex phase_mutex;  // phases, and which one it is
    std::map<std::string, Phase, std::less<>> phases{{std::string(kNoPhase), {}}};
    Phase* phase = &phases.begin()->second;
    int depth = 0;
    std::atomic<std::uint64_t> phase_peak{0};  // phase->peak, to be read without the lock
};

constinit thread_local Registry* t_separate = nullptr;

Registry& registry() {
    if (t_separate != nullptr) return *t_separate;
    static Registry* instance = new Registry;  // outlives every static Buffer
    return *instance;
}

MemoryStats snapshot(const TagCounters& counters) {
    return {counters.live.load(), counters.peak.load(), counters.allocations.load()};
}

// Takes the present as the phase's peak if it is one. With the phase's lock held.
void raise_peak(Registry& r) {
    const std::uint64_t live = r.live.load();
    if (live <= r.phase->peak) return;
    r.phase->peak = live;
    r.phase_peak.store(live);
    for (std::size_t i = 0; i < r.counters.size(); ++i) r.phase->by_tag[i] = r.counters[i].live.load();
}

void turn_to(Registry& r, std::string_view name) {
    const auto found = r.phases.find(name);
    r.phase = found != r.phases.end() ? &found->second : &r.phases.emplace(name, Phase{}).first->second;
    r.phase_peak.store(r.phase->peak);
    raise_peak(r);
}

MemoryPeak to_peak(const Registry& r, const Phase& phase) {
    MemoryPeak result{phase.peak, {}};
    for (const auto& [name, index] : r.tags) {
        const std::uint64_t bytes = phase.by_tag[static_cast<std::size_t>(index)];
        if (bytes > 0) result.by_tag[name] = bytes;
    }
    return result;
}

}  // namespace

namespace detail {

// --- what every allocation is counted by

int memory_tag(std::string_view name) {
    Registry& r = registry();
    const std::lock_guard lock(r.mutex);
    if (const auto found = r.tags.find(name); found != r.tags.end()) return found->second;
    const int index = static_cast<int>(r.tags.size());
    require(index < kMaxTags, "more than {} memory tags; the newest is '{}'", kMaxTags, name);
    r.tags.emplace(name, index);
    return index;
}

void count_allocation(int tag, std::size_t bytes) noexcept {
    TagCounters& c = registry().counters[static_cast<std::size_t>(tag)];
    const std::uint64_t live = c.live.fetch_add(bytes) + bytes;
    c.allocations.fetch_add(1);
    std::uint64_t peak = c.peak.load();
    while (live > peak && !c.peak.compare_exchange_weak(peak, live)) {
    }
    Registry& r = registry();
    if (r.live.fetch_add(bytes) + bytes <= r.phase_peak.load()) return;
    const std::lock_guard lock(r.phase_mutex);
    raise_peak(r);
}

void count_release(int tag, std::size_t bytes) noexcept {
    registry().counters[static_cast<std::size_t>(tag)].live.fetch_sub(bytes);
    registry().live.fetch_sub(bytes);
}

struct SeparateStatistics::Impl {
    Registry registry;
};

SeparateStatistics::SeparateStatistics() : impl_(std::make_unique<Impl>()) {
    t_separate = &impl_->registry;
}

SeparateStatistics::~SeparateStatistics() {
    t_separate = nullptr;
}

}  // namespace detail

// --- the error

OutOfMemory::OutOfMemory(Device device, std::uint64_t asked_bytes, std::uint64_t free_bytes,
                         std::string_view tag)
    : OutOfMemory(to_string(device) + " is out of memory", asked_bytes, free_bytes, tag) {}

OutOfMemory::OutOfMemory(const std::string& what_is_full, std::uint64_t asked_bytes, std::uint64_t free_bytes,
                         std::string_view tag)
    : Error(fmt::format("{}: asked for {} bytes{}, {} free", what_is_full, asked_bytes,
                        tag.empty() ? "" : fmt::format(" for '{}'", tag), free_bytes)),
      what_is_full_(what_is_full),
      asked_bytes_(asked_bytes),
      free_bytes_(free_bytes) {}

// --- what was counted, and the phases of it

MemoryStats memory_stats(std::string_view tag) {
    Registry& r = registry();
    const std::lock_guard lock(r.mutex);
    const auto found = r.tags.find(tag);
    return found == r.tags.end() ? MemoryStats{}
                                 : snapshot(r.counters[static_cast<std::size_t>(found->second)]);
}

std::map<std::string, MemoryStats> all_memory_stats() {
    Registry& r = registry();
    const std::lock_guard lock(r.mutex);
    std::map<std::string, MemoryStats> result;
    for (const auto& [name, index] : r.tags)
        result[name] = snapshot(r.counters[static_cast<std::size_t>(index)]);
    return result;
}

void reset_memory_peaks() {
    Registry& r = registry();
    for (TagCounters& c : r.counters) c.peak.store(c.live.load());
    const std::lock_guard lock(r.phase_mutex);
    for (auto& [name, phase] : r.phases) phase = {};
    r.phase_peak.store(0);
    raise_peak(r);
}

MemoryPeak memory_peak() {
    Registry& r = registry();
    const std::scoped_lock lock(r.mutex, r.phase_mutex);
    const Phase* most = r.phase;
    for (const auto& [name, phase] : r.phases) {
        if (phase.peak > most->peak) most = &phase;
    }
    return to_peak(r, *most);
}

std::map<std::string, MemoryPeak> memory_phase_peaks() {
    Registry& r = registry();
    const std::scoped_lock lock(r.mutex, r.phase_mutex);
    std::map<std::string, MemoryPeak> result;
    for (const auto& [name, phase] : r.phases) {
        if (phase.peak > 0) result[name] = to_peak(r, phase);
    }
    return result;
}

MemoryPhase::MemoryPhase(std::string_view name) {
    Registry& r = registry();
    const std::lock_guard lock(r.phase_mutex);
    if (r.depth++ == 0) turn_to(r, name);
}

MemoryPhase::~MemoryPhase() {
    Registry& r = registry();
    const std::lock_guard lock(r.phase_mutex);
    if (--r.depth == 0) turn_to(r, kNoPhase);
}

// --- a buffer, which counts from its allocation to its release

Buffer::Buffer(std::size_t bytes, std::string_view tag, MemoryPool& pool)
    : pool_(&pool), bytes_(bytes), tag_(detail::memory_tag(tag)) {
    try {
        data_ = pool.allocate(bytes);
    } catch (const OutOfMemory& error) {
        throw error.with_tag(tag);
    }
    detail::count_allocation(tag_, bytes);
}

Buffer::Buffer(Buffer&& other) noexcept
    : pool_(std::exchange(other.pool_, nullptr)),
      data_(std::exchange(other.data_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)),
      tag_(std::exchange(other.tag_, -1)) {}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
    if (this != &other) {
        free();
        pool_ = std::exchange(other.pool_, nullptr);
        data_ = std::exchange(other.data_, nullptr);
        bytes_ = std::exchange(other.bytes_, 0);
        tag_ = std::exchange(other.tag_, -1);
    }
    return *this;
}

Buffer::~Buffer() {
    free();
}

void Buffer::free() noexcept {
    if (pool_ == nullptr) return;
    pool_->release(data_, bytes_);
    detail::count_release(tag_, bytes_);
    pool_ = nullptr;
}

}  // namespace tandem
