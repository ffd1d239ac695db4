// Asks an engine for completions, whoever's it is: token ids in, token ids and log-probs out.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/error.h"

namespace tandem::trainer {

struct Completion {
    std::vector<std::int32_t> tokens;  // with the stop token
    std::vector<float> logprobs;       // of the tokens, by the engine
    std::int64_t weight_version = 0;   // the weights that made them
    bool truncated = false;            // max_new_tokens ended it, not a stop token
    bool non_finite = false;           // there is none: the engine's logits for it are infinite or NaN
    bool aborted = false;  // there is none: somebody ended it there; none that a client returns (aborted.h)
    friend bool operator==(const Completion&, const Completion&) = default;
};

struct Sampling {
    double temperature = 1.0;  // 0: greedy
    std::int64_t max_new_tokens = 1;
    std::vector<std::int32_t> stop_tokens;
};

// The engine's logits for one of a call's prompts, or for several, are infinite or NaN; it does not say which.
class NonFiniteLogits : public TransportError {
  public:
    using TransportError::TransportError;
};

// Blocking; one thread.
class RolloutClient {
  public:
    virtual ~RolloutClient() = default;

    // One completion for each prompt, each with a seed of its own, so that it does not depend on its
    // neighbours. The call has the deadline to itself. Throws TransportError or DeadlineExceeded naming the
    // engine; NonFiniteLogits where that engine tells; ProtocolError when an answer is malformed or was made by other
    // weights than `version`.
    virtual std::vector<Completion> generate(std::span<const std::vector<std::int32_t>> prompts,
                                             std::span<const std::uint64_t> seeds, const Sampling& sampling,
                                             std::int64_t version) = 0;

    // Number of prompts that a call should carry.
    virtual std::size_t batch() const = 0;
};

struct RolloutClientOptions {
    std::chrono::nanoseconds deadline{};  // of a call
    std::int64_t batch = 1;
    double temperature = 1;  // that will be sampled at, beside greedy
};

// By the scheme of an engine's URL (trainer/config/engine_url.h). Throws BadInput for a malformed one, and what the
// client's constructor does.
std::unique_ptr<RolloutClient> make_rollout_client(const std::string& url,
                                                   const RolloutClientOptions& options);

}  // namespace tandem::trainer
