// Completions by /generate in SGLang's words: the embedded engine and a real SGLang answer alike.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "common/http/client.h"
#include "trainer/rollout/client.h"

namespace tandem::trainer {

class SglangClient final : public RolloutClient {
  public:
    // url: "sglang://HOST:PORT", or an engine's of ours. Of the environment, SGLANG_API_KEY or TANDEM_API_KEY is sent. Asks
    // SGLang whether its samples follow seeds, and warns where they do not; blocks for at most the deadline. Throws
    // TransportError, DeadlineExceeded.
    SglangClient(const std::string& url, const RolloutClientOptions& options);

    // One request, and more for samples that are aborted (aborted.h). A connection that breaks is opened once more.
    std::vector<Completion> generate(std::span<const std::vector<std::int32_t>> prompts,
                                     std::span<const std::uint64_t> seeds, const Sampling& sampling,
                                     std::int64_t version) override;
    std::size_t batch() const override { return batch_; }

  private:
    void check_server();
    nlohmann::json post(const nlohmann::json& body, Deadline deadline);

    bool others_;  // SGLang itself
    http::Client client_;
    std::chrono::nanoseconds deadline_;
    std::size_t batch_;
};

}  // namespace tandem::trainer
