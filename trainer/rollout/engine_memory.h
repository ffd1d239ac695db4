// Puts the engine's memory to sleep while the trainer computes, and wakes its weights before a sync and its
// cache after it. Rank 0 asks the engine; the other ranks do nothing.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "common/http/client.h"

namespace tandem::trainer {

class EngineMemory {
  public:
    EngineMemory() = default;  // of the other ranks
    // level: "none", "kv_cache" or "all". Of the environment, SGLANG_API_KEY or TANDEM_API_KEY is sent. Throws
    // InvalidArgument for a malformed URL; of an SGLang, which is asked whether it can, also what the others throw.
    EngineMemory(const std::string& url, const std::string& level, std::chrono::nanoseconds deadline);

    // Throw TransportError or DeadlineExceeded naming the engine, with its reason when it refuses.
    void sleep();         // before the trainer computes
    void wake_weights();  // before a sync
    void wake_cache();    // after a sync

  private:
    void check_server();
    void ask(const char* target, const char* tag);
    void post(const std::string& target, const std::string& body);

    std::unique_ptr<http::Client> client_;
    bool others_ = false;  // SGLang itself
    bool weights_ = false;
    bool asleep_ = false;
    std::chrono::nanoseconds deadline_{};
};

}  // namespace tandem::trainer
