// The process's pool of private CPU memory, and pools over a fixed range.
#include "common/device/memory.h"
#include "common/align.h"
#include "common/device/huge_pages.h"

#include <malloc.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "common/device/counting/counting.h"
#include "common/device/cpu/caching_pool.h"
#include "common/error.h"

namespace tandem {
namespace {

constexpr std::size_t kAlignment = 64;

std::uint64_t available_bytes() {
    const long pages = ::sysconf(_SC_AVPHYS_PAGES);
    return pages < 0
               ? 0
               : static_cast<std::uint64_t>(pages) * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}

// Large blocks are in huge pages where the system grants them on request: what streams through them translates
// fewer addresses. Only pages that lie in the block: its memory never takes more than its bytes.
std::byte* system_allocate(std::size_t bytes) {
    constexpr std::size_t kLarge = 8 * kHugePage;
    const bool large = bytes >= kLarge;
    void* data = nullptr;
    if (posix_memalign(&data, large ? kHugePage : kAlignment, bytes) != 0)
        throw OutOfMemory(Device{}, bytes, available_bytes());
    if (large) ::madvise(data, bytes / kHugePage * kHugePage, MADV_HUGEPAGE);  // a hint
    return static_cast<std::byte*>(data);
}

detail::CachingPool& caching_pool() {
    // outlives every static Buffer
    static auto* pool = new detail::CachingPool({system_allocate, [](std::byte* data) { std::free(data); }});
    return *pool;
}

// Best fit over a map of free ranges; neighbours merge on release.
class RangePool final : public MemoryPool {
  public:
    RangePool(Span range, std::string name, Device device, void (*first_use)(Span))
        : range_(range), name_(std::move(name)), device_(device), first_use_(first_use) {
        free_by_offset_[0] = range.bytes / kAlignment * kAlignment;
    }
    Device device() const override { return device_; }

    std::byte* allocate(std::size_t bytes) override {
        const std::size_t wanted = rounded(bytes);
        std::unique_lock lock(mutex_);
        auto best = free_by_offset_.end();
        std::size_t available = 0;
        for (auto it = free_by_offset_.begin(); it != free_by_offset_.end(); ++it) {
            available += it->second;
            if (it->second >= wanted && (best == free_by_offset_.end() || it->second < best->second))
                best = it;
        }
        if (best == free_by_offset_.end()) {
            throw OutOfMemory(fmt::format("pool '{}' is full", name_), bytes, available);
        }
        const auto [offset, size] = *best;
        free_by_offset_.erase(best);
        if (size > wanted) free_by_offset_[offset + wanted] = size - wanted;
        const Span fresh = first_used(offset, wanted);
        lock.unlock();
        if (fresh.bytes > 0) first_use_(fresh);
        return range_.data + offset;
    }

    void release(std::byte* data, std::size_t bytes) noexcept override {
        const std::lock_guard lock(mutex_);
        auto it = free_by_offset_.emplace(static_cast<std::size_t>(data - range_.data), rounded(bytes)).first;
        if (const auto next = std::next(it);
            next != free_by_offset_.end() && it->first + it->second == next->first) {
            it->second += next->second;
            free_by_offset_.erase(next);
        }
        if (it == free_by_offset_.begin()) return;
        if (const auto before = std::prev(it); before->first + before->second == it->first) {
            before->second += it->second;
            free_by_offset_.erase(it);
        }
    }

  private:
    static std::size_t rounded(std::size_t bytes) {
        return round_up(std::max(bytes, kAlignment), kAlignment);
    }
    // The huge pages that a large block is the first in, those at its ends too: its neighbours follow.
    Span first_used(std::size_t offset, std::size_t bytes) {
        if (first_use_ == nullptr || bytes < kHugePage) return {};
        const std::size_t begin = std::max(used_, offset / kHugePage * kHugePage);
        const std::size_t end = std::min(round_up(offset + bytes, kHugePage), range_.bytes);
        if (end <= begin) return {};
        used_ = end;
        return range_.subspan(begin, end - begin);
    }
    std::mutex mutex_;
    Span range_;
    std::string name_;
    Device device_;
    void (*first_use_)(Span);
    std::size_t used_ = 0;                               // the end of what first_use_ has had
    std::map<std::size_t, std::size_t> free_by_offset_;  // offset -> bytes
};

}  // namespace

MemoryPool& cpu_pool() {
    return only_counts() ? detail::counting::pool(Device{}) : caching_pool();
}

std::size_t trim_cpu_pool() {
    if (only_counts()) return 0;
    const std::size_t bytes = caching_pool().trim();
    ::malloc_trim(0);
    return bytes;
}

std::unique_ptr<MemoryPool> make_range_pool(Span range, std::string name, Device device,
                                            void (*first_use)(Span)) {
    return std::make_unique<RangePool>(range, std::move(name), device, first_use);
}

}  // namespace tandem
