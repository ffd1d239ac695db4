// The engine's memory around the phases: what `level` says is given back when the trainer begins to compute,
// the weights come back before a sync and the cache after it. Rank 0 asks; the others do nothing.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "common/http/client.h"

namespace tandem::trainer {

class EngineMemory {
  public:
    EngineMemory() = default;  // asks nobody
    // level: "none", "kv_cache" or "all". Throws InvalidArgument for a URL that is none.
    EngineMemory(const std::string& url, const std::string& level, std::chrono::nanoseconds deadline);

    // Throw TransportError or DeadlineExceeded naming the engine, with its reason when it refuses.
    void before_training();
    void before_sync();
    void after_sync();

  private:
    void ask(const char* target, const char* tag);

    std::unique_ptr<http::Client> client_;
    bool weights_ = false;
    bool asleep_ = false;
    std::chrono::nanoseconds deadline_{};
};

}  // namespace tandem::trainer
