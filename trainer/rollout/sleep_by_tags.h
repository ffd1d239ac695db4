// An engine of ours, or an SGLang, whose memory sleeps while the trainer computes: both have SGLang's routes.
#pragma once

#include <chrono>
#include <string>

#include "common/http/client.h"
#include "trainer/rollout/sleeping_engine.h"

namespace tandem::trainer {

class SleepByTags final : public SleepingEngine {
  public:
    // weights: those sleep, too. Throws Error saying how to start an SGLang that would keep its memory.
    SleepByTags(const std::string& url, bool weights, std::chrono::nanoseconds deadline);

    bool sleep() override;
    void wake_weights() override;
    void wake_cache() override;

  private:
    void check_server();
    void ask(const char* target, const char* tag);
    void post(const std::string& target, const std::string& body);

    bool others_;  // SGLang itself
    bool weights_;
    std::chrono::nanoseconds deadline_;
    http::Client client_;
};

}  // namespace tandem::trainer
