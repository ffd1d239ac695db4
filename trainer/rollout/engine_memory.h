// Puts the engine's memory to sleep while the trainer computes, and wakes its weights before a sync and its
// cache after it. Rank 0 asks the engine; the other ranks do nothing.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "trainer/rollout/sleeping_engine.h"

namespace tandem::trainer {

class EngineMemory {
  public:
    EngineMemory() = default;  // of the other ranks
    // level: "none", "kv_cache" or "all". Of the environment, the key of the engine's kind is sent: TANDEM_API_KEY,
    // SGLANG_API_KEY or VLLM_API_KEY. Throws InvalidArgument for a malformed URL; of a third-party server, which is asked
    // whether it can, also what the others throw.
    EngineMemory(const std::string& url, const std::string& level, std::chrono::nanoseconds deadline);

    // Throw TransportError or DeadlineExceeded naming the engine, with its reason when it refuses.
    void sleep();         // before the trainer computes
    void wake_weights();  // before a sync
    void wake_cache();    // after a sync

  private:
    std::unique_ptr<SleepingEngine> engine_;
    bool asleep_ = false;
};

}  // namespace tandem::trainer
