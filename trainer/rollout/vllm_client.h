// Completions by a vLLM server (0.32, 0.33; token_in_token_out/protocol.py and openai/completion/protocol.py there): one
// request a prompt, many at once, over connections that stay open.
//
//   route                    the weights that made an answer
//   /inference/v1/generate   "weight_versions" of the answer
//   /v1/completions          the same since 0.33; else /weight_info, before the requests and after them: the pusher
//                            pauses the server, so nothing lies between
#pragma once

#include <atomic>

#include "common/http/client.h"
#include "trainer/rollout/client.h"
#include "trainer/rollout/vllm_requests.h"

namespace tandem::trainer {

class VllmClient final : public RolloutClient {
  public:
    // url: "vllm://HOST:PORT". Asks the server which route it has and which log-probs it gives; blocks for at most the
    // deadline. VLLM_API_KEY of the environment is sent. Throws TransportError, and Error where its log-probs are not
    // those of the temperature, or where it would not survive a seed.
    VllmClient(const std::string& url, const RolloutClientOptions& options);

    // A connection that breaks is opened once more: the seed makes the second answer the first one's equal. What is refused
    // with 503, as of a server that is paused, is asked for again until the deadline.
    std::vector<Completion> generate(std::span<const std::vector<std::int32_t>> prompts,
                                     std::span<const std::uint64_t> seeds, const Sampling& sampling,
                                     std::int64_t version) override;
    std::size_t batch() const override { return batch_; }
    VllmRoute route() const { return route_; }

  private:
    http::Response ask(http::Client& client, const std::string& method, const std::string& target,
                       const std::string& body, Deadline deadline) const;
    nlohmann::json checked(const std::string& phase, const http::Response& response) const;
    void check_server(double temperature, Deadline deadline);
    VllmRoute find_route(Deadline deadline);
    std::string weight_version(Deadline deadline);
    std::vector<Completion> generate_once(std::span<const std::vector<std::int32_t>> prompts,
                                          std::span<const std::uint64_t> seeds, const Sampling& sampling,
                                          std::int64_t version, Deadline deadline);
    std::vector<VllmAnswer> ask_all(std::span<const std::vector<std::int32_t>> prompts,
                                    std::span<const std::uint64_t> seeds, const Sampling& sampling,
                                    Deadline deadline);

    std::string url_;
    std::string key_;
    std::chrono::nanoseconds deadline_;
    std::size_t batch_;
    std::vector<http::Client> clients_;  // the first one asks for all that is not a completion
    VllmRoute route_;
    std::atomic<bool> told_unavailable_{false};
};

}  // namespace tandem::trainer
