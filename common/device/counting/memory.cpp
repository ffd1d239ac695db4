// The thread, its statistics, and its memory: sparse address space, handed out block by block.
#include <cstring>

#include "common/device/counting/counting.h"
#include "common/device/memory_stats.h"
#include "common/device/shared_arena.h"
#include "common/error.h"
#include "common/thread.h"
#include "common/trace.h"

namespace tandem {
namespace detail {

constinit thread_local bool t_only_counts = false;

namespace counting {
namespace {

#if defined(TANDEM_SANITIZE_thread)
constexpr std::size_t kReach = std::size_t{256} << 30;  // what the sanitizer leaves of the addresses
#else
constexpr std::size_t kReach = std::size_t{16} << 40;
#endif
// Results that the host reads are in blocks of at most this size: they start as zeros.
constexpr std::size_t kResult = 4096;

class Pool final : public MemoryPool {
  public:
    Pool(Span addresses, Device device)
        : blocks_(make_range_pool(addresses, "addresses of a thread that only counts", device)) {}
    Device device() const override { return blocks_->device(); }
    std::byte* allocate(std::size_t bytes) override {
        std::byte* const data = blocks_->allocate(bytes);
        if (bytes <= kResult && device().type == DeviceType::cpu) std::memset(data, 0, bytes);
        return data;
    }
    void release(std::byte* data, std::size_t bytes) noexcept override { blocks_->release(data, bytes); }

  private:
    std::unique_ptr<MemoryPool> blocks_;
};

struct OfThread {
    trace::Muted muted;
    SeparateStatistics statistics;
    SharedArena addresses = SharedArena::create("counted", kReach, "");
    Pool cpu{addresses.span().subspan(0, kReach / 2), Device{}};
    Pool gpu{addresses.span().subspan(kReach / 2, kReach / 2), Device{DeviceType::cuda, 0}};
};

thread_local OfThread* t_here = nullptr;

}  // namespace

MemoryPool& pool(Device device) {
    return device.type == DeviceType::cpu ? t_here->cpu : t_here->gpu;
}

}  // namespace counting
}  // namespace detail

void run_counting(const std::function<void()>& body) {
    require(!only_counts(), "a thread that only counts starts no other one");
    const auto run = [&] {
        detail::counting::OfThread here;
        detail::counting::t_here = &here;
        detail::t_only_counts = true;
        body();
    };
    start_call("that only counts", run).get();
}

}  // namespace tandem
