// A generate request and its result, free of HTTP and JSON.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/error.h"

namespace tandem::engine {

// SGLang's sampling_params. Log-probs are those of softmax(logits / temperature) over the whole vocabulary,
// before top_k, top_p and min_p; a temperature below 1e-6 is greedy and then counts as 1.
struct SamplingParams {
    float temperature = 1.0f;
    std::int32_t top_k = -1;  // -1: off
    float top_p = 1.0f;
    float min_p = 0.0f;  // tokens less likely than min_p times the likeliest are out
    std::optional<std::uint64_t> seed;
    std::vector<std::int32_t> stop_token_ids;
    bool ignore_eos =
        false;  // as in SGLang: neither the end-of-sequence token nor stop_token_ids stop the sample
    std::int64_t max_new_tokens = 128;
    std::int64_t n = 1;

    bool greedy() const { return temperature < 1e-6f; }
};

// One prompt with its parameters.
struct Prompt {
    std::string id;
    std::vector<std::int32_t> tokens;
    SamplingParams params;
    // Where the random numbers of its samples start: sample i draws from stream first_stream + i of its seed.
    // Prompts that share one seed get distinct streams.
    std::uint64_t first_stream = 0;
    bool return_logprob = false;      // in the answer
    bool skip_special_tokens = true;  // in the answer's text
    bool no_stop_trim = false;        // the answer's text keeps the token that stopped it
};

struct GenerateRequest {
    std::string id;
    bool named = false;  // by its sender; else the ids are ours
    std::vector<Prompt> prompts;
    bool return_logprob = false;           // for any of the prompts
    bool return_text_in_logprobs = false;  // each token's text beside its log-prob
    bool return_prompt_token_ids = false;
    bool as_list = false;  // the prompts came as a list: so does the answer

    std::int64_t samples() const {
        std::int64_t sum = 0;
        for (const Prompt& prompt : prompts) sum += prompt.params.n;
        return sum;
    }
    std::int64_t prompt_tokens() const {
        std::int64_t sum = 0;
        for (const Prompt& prompt : prompts) sum += static_cast<std::int64_t>(prompt.tokens.size());
        return sum;
    }
    // Small requests do not wait for large ones (scheduler.h): what all samples may hold together decides.
    bool small() const {
        constexpr std::int64_t kMostTokens = 8192;
        std::int64_t sum = 0;
        for (const Prompt& prompt : prompts)
            sum += prompt.params.n *
                   (static_cast<std::int64_t>(prompt.tokens.size()) + prompt.params.max_new_tokens);
        return sum <= kMostTokens;
    }
};

enum class Finish : std::uint8_t { stop, length, abort };

struct SampleOutput {
    std::size_t prompt = 0;  // index in the request
    std::vector<std::int32_t> tokens;
    std::vector<float> logprobs;  // of tokens; empty unless asked for
    Finish finish = Finish::abort;
    std::int32_t matched = -1;  // the token that stopped it
    std::int64_t version = 0;   // of the weights that made every one of its tokens
};

struct GenerateResult {
    Status status;
    std::vector<SampleOutput> samples;  // prompt by prompt, n each; empty unless status.ok()
    double latency_seconds = 0;
};

}  // namespace tandem::engine
