#include "tests/emulated_gpu/memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <unordered_map>

#include "common/align.h"
#include "common/device/devices.h"
#include "common/error.h"
#include "common/log.h"
#include "tests/emulated_gpu/emulated.h"
#include "tests/emulated_gpu/stream.h"

namespace tandem::emulated {
namespace {

constexpr std::size_t kGranule = std::size_t{2} << 20;
constexpr std::size_t kReach = std::size_t{256} << 30;  // of addresses; as many again are their aliases
constexpr std::size_t kPoison = std::size_t{1} << 20;  // of a freed block, at most: NaN in every float format
constexpr int kMaxGpus = 8;

std::size_t granules(std::size_t bytes) {
    return round_up(std::max<std::size_t>(bytes, 1), kGranule);
}

long long from_environment(const char* name, long long otherwise, long long most) {
    const char* text = std::getenv(name);
    if (text == nullptr || *text == '\0') return otherwise;
    long long value = 0;
    const char* end = text + std::strlen(text);
    const auto [at, error] = std::from_chars(text, end, value);
    if (error != std::errc() || at != end || value < 0 || value > most)
        throw ConfigError("environment", name, fmt::format("'{}' is not a number from 0 to {}", text, most));
    return value;
}

// Reserved once, never given back: an address that was a GPU's never becomes something else's.
struct Addresses {
    std::byte* base = nullptr;
    std::unique_ptr<MemoryPool> free;

    Addresses() {
        void* data = ::mmap(nullptr, 2 * kReach + kGranule, PROT_NONE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (data == MAP_FAILED) throw SystemError("reserve the emulated GPU's addresses", errno);
        ::madvise(data, 2 * kReach + kGranule, MADV_DONTDUMP);
        const auto at = reinterpret_cast<std::uintptr_t>(data);
        base = reinterpret_cast<std::byte*>(round_up(at, kGranule));
        free = make_range_pool({base, kReach}, "addresses of the emulated GPU");
    }
};

std::atomic<std::byte*> g_base{nullptr};  // null until the first use

Addresses& addresses() {
    static Addresses* instance = [] {
        auto* made = new Addresses;
        g_base.store(made->base);
        return made;
    }();
    return *instance;
}

std::array<std::atomic<std::size_t>, kMaxGpus>& used() {
    static std::array<std::atomic<std::size_t>, kMaxGpus> instance{};
    return instance;
}

// Blocks go back in the order of the compute stream, as on a GPU, and come back poisoned: code that still
// uses one, or forgot to fill it, reads NaN. A block without a stream goes back when every stream of the
// device has drained.
class Pool final : public MemoryPool {
  public:
    explicit Pool(Device device) : device_(device) {
        window_ = {map(-1, total_bytes()), total_bytes()};
        blocks_ = make_range_pool(window_, "memory of emulated " + to_string(device), device);
    }
    Device device() const override { return device_; }

    std::byte* allocate(std::size_t bytes) override {
        take(device_, bytes);
        try {
            std::byte* data = block(bytes);
            const std::lock_guard lock(mutex_);
            const auto stream = detail::compute_stream(device_);
            if (stream) took(*stream, data);
            streams_[data] = stream;
            return data;
        } catch (...) {
            give_back(device_, bytes);
            throw;
        }
    }

    void release(std::byte* data, std::size_t bytes) noexcept override {
        give_back(device_, bytes);
        std::shared_ptr<detail::StreamBackend> stream;
        {
            const std::lock_guard lock(mutex_);
            const auto found = streams_.find(data);
            stream = found->second.lock();
            streams_.erase(found);
        }
        const auto finish = [this, data, bytes] {
            std::memset(host_alias(data), 0xff, std::min(bytes, kPoison));
            blocks_->release(data, bytes);
        };
        if (stream) {
            try {
                hand_back(*stream, data, finish);
                return;
            } catch (...) {  // NOLINT: no memory for the queue's entry; the slow way does
            }
        }
        drain_streams(device_);
        finish();
    }

  private:
    std::byte* block(std::size_t bytes) {
        try {
            return blocks_->allocate(bytes);
        } catch (const OutOfMemory&) {
            drain_streams(device_);  // what was released may not have come back yet
            return blocks_->allocate(bytes);
        }
    }

    Device device_;
    Span window_;
    std::unique_ptr<MemoryPool> blocks_;
    std::mutex mutex_;
    std::unordered_map<std::byte*, std::weak_ptr<detail::StreamBackend>> streams_;
};

}  // namespace

int gpu_count() {
    static const int count = [] {
        const auto asked = static_cast<int>(from_environment("TANDEM_EMULATED_GPUS", 0, kMaxGpus));
        if (asked > 0)
            log_warn("{} emulated GPU(s): a test device that runs on the CPU (TANDEM_EMULATED_GPUS)", asked);
        return asked;
    }();
    return count;
}

std::uint64_t total_bytes() {
    static const auto mib =
        static_cast<std::uint64_t>(from_environment("TANDEM_EMULATED_GPU_MIB", 8192, 16384));
    return mib << 20;
}

bool owns(const void* address) {
    const std::byte* base = g_base.load(std::memory_order_relaxed);
    const auto at = reinterpret_cast<std::uintptr_t>(address);
    const auto from = reinterpret_cast<std::uintptr_t>(base);
    return base != nullptr && at >= from && at < from + kReach;
}

std::byte* host_alias(std::byte* data) {
    return owns(data) ? data + kReach : data;
}

MemoryPool& pool(Device device) {
    static std::array<Pool*, kMaxGpus> pools{};
    static std::mutex mutex;
    require_device(device);
    const std::lock_guard lock(mutex);
    Pool*& slot = pools[static_cast<std::size_t>(device.index)];
    if (slot == nullptr) slot = new Pool(device);  // outlives every static Buffer
    return *slot;
}

void take(Device device, std::size_t bytes) {
    auto& mine = used()[static_cast<std::size_t>(device.index)];
    std::size_t before = mine.load();
    do {
        if (before + bytes > total_bytes()) throw OutOfMemory(device, bytes, total_bytes() - before);
    } while (!mine.compare_exchange_weak(before, before + bytes));
}

void give_back(Device device, std::size_t bytes) noexcept {
    used()[static_cast<std::size_t>(device.index)].fetch_sub(bytes);
}

std::uint64_t free_bytes(Device device) {
    return total_bytes() - used()[static_cast<std::size_t>(device.index)].load();
}

std::byte* map(int fd, std::size_t bytes) {
    require(!recording_here(), "{} bytes are mapped while this thread records a graph", bytes);
    std::byte* data = addresses().free->allocate(granules(bytes));
    const int flags = MAP_FIXED | MAP_NORESERVE | (fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED);
    if (::mmap(data + kReach, bytes, PROT_READ | PROT_WRITE, flags, fd, 0) == MAP_FAILED) {
        const int error = errno;
        addresses().free->release(data, granules(bytes));
        throw SystemError(fmt::format("map {} bytes of an emulated GPU", bytes), error);
    }
    ::madvise(data + kReach, bytes, MADV_DONTDUMP);
    return data;
}

void unmap(std::byte* data, std::size_t bytes) noexcept {
    ::mmap(data + kReach, granules(bytes), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED,
           -1, 0);
    addresses().free->release(data, granules(bytes));
}

}  // namespace tandem::emulated
