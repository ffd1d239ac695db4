// Client of an engine's /generate, in SGLang's words: the embedded engine and a real SGLang answer alike.
#pragma once

#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "common/http/client.h"

namespace tandem::trainer {

struct Completion {
    std::vector<std::int32_t> tokens;  // with the stop token
    std::vector<float> logprobs;       // of the tokens, by the engine
    std::int64_t weight_version = 0;   // the weights that made them
    bool truncated = false;            // max_new_tokens ended it, not a stop token
    friend bool operator==(const Completion&, const Completion&) = default;
};

struct Sampling {
    double temperature = 1.0;  // 0: greedy
    std::int64_t max_new_tokens = 1;
    std::vector<std::int32_t> stop_tokens;
};

// Blocking; one thread.
class RolloutClient {
  public:
    RolloutClient(const std::string& url, std::chrono::nanoseconds deadline, std::int64_t batch);

    // One completion for each prompt, each with a seed of its own, so that it does not depend on its
    // neighbours. One request, which has the deadline to itself. Throws TransportError or DeadlineExceeded
    // naming the engine; ProtocolError when an answer is malformed or was made by other weights than
    // `version`.
    std::vector<Completion> generate(std::span<const std::vector<std::int32_t>> prompts,
                                     std::span<const std::uint64_t> seeds, const Sampling& sampling,
                                     std::int64_t version);

    // Number of prompts that a request should carry.
    std::size_t batch() const { return batch_; }

  private:
    http::Client client_;
    std::chrono::nanoseconds deadline_;
    std::size_t batch_;
};

}  // namespace tandem::trainer
