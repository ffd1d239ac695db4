// Completions by /generate in SGLang's words: the embedded engine and a real SGLang answer alike.
#pragma once

#include "common/http/client.h"
#include "trainer/rollout/client.h"

namespace tandem::trainer {

class SglangClient final : public RolloutClient {
  public:
    SglangClient(const std::string& url, const RolloutClientOptions& options);

    // One request.
    std::vector<Completion> generate(std::span<const std::vector<std::int32_t>> prompts,
                                     std::span<const std::uint64_t> seeds, const Sampling& sampling,
                                     std::int64_t version) override;
    std::size_t batch() const override { return batch_; }

  private:
    http::Client client_;
    std::chrono::nanoseconds deadline_;
    std::size_t batch_;
};

}  // namespace tandem::trainer
