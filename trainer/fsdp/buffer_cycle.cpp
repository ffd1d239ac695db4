#include "trainer/fsdp/buffer_cycle.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "common/device/tier.h"

namespace tandem::trainer {
namespace {

constexpr auto kPatience = std::chrono::seconds(60);  // for a transfer that was begun before

}  // namespace

Tensor BufferCycle::take(std::int64_t numel, DType dtype, Stream& user) {
    OfOneSize& size = sizes_[{numel, dtype}];
    // On a GPU the host runs ahead of the work, so that nothing looks idle: the taker's stream waits there.
    const bool on_gpu = pool_->device().type != DeviceType::cpu;
    const int least = on_gpu ? std::max(size.least, kTurns) : size.least;
    const bool again = size.made >= least && !size.waiting.empty() &&
                       (least > 0 || size.waiting.front().free_after.poll() != Poll::pending);
    if (!again) {
        ++size.made;
        return Tensor::empty({numel}, dtype, tag_, *pool_);
    }
    const Waiting oldest = std::move(size.waiting.front());
    size.waiting.pop_front();
    user.wait(oldest.free_after);
    return oldest.buffer;
}

void BufferCycle::give_back(Tensor buffer, Event free_after) {
    OfOneSize& size = sizes_[{buffer.numel(), buffer.dtype()}];
    size.waiting.push_back({std::move(buffer), std::move(free_after)});
}

void BufferCycle::free() {
    for (auto& [key, size] : sizes_) {
        for (Waiting& idle : size.waiting) {
            idle.free_after.wait(Deadline::after(kPatience));
            if (pool_->device().type == DeviceType::cpu) const ReleasedPages gone(idle.buffer.span(), tag_);
        }
        size.made -= static_cast<int>(size.waiting.size());
        size.waiting.clear();
    }
}

}  // namespace tandem::trainer
