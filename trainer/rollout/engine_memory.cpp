#include "trainer/rollout/engine_memory.h"

#include "trainer/config/engine_url.h"
#include "trainer/rollout/sleep_by_tags.h"
#include "trainer/rollout/vllm_sleep.h"

namespace tandem::trainer {

EngineMemory::EngineMemory(const std::string& url, const std::string& level,
                           std::chrono::nanoseconds deadline) {
    if (level == "none") return;
    const bool weights = level == "all";
    if (engine_kind(url) == EngineKind::vllm) {
        engine_ = std::make_unique<VllmSleep>(url, weights, deadline);
    } else {
        engine_ = std::make_unique<SleepByTags>(url, weights, deadline);
    }
    asleep_ = engine_->asleep();
}

void EngineMemory::sleep() {
    if (engine_ && !asleep_) asleep_ = engine_->sleep();
}

void EngineMemory::wake_weights() {
    if (asleep_) engine_->wake_weights();
}

void EngineMemory::wake_cache() {
    if (asleep_) engine_->wake_cache();
    asleep_ = false;
}

}  // namespace tandem::trainer
