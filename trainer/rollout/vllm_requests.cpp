#include "trainer/rollout/vllm_requests.h"

#include <fmt/core.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "common/error.h"
#include "common/json_text.h"

namespace tandem::trainer {
namespace {

using nlohmann::json;

constexpr float kNoLogprob = -9999;  // what vLLM writes where it has none, or NaN

// All that would otherwise come from the model's generation_config.json. Only stop_tokens end an answer, as with our
// engine.
json sampling_fields(std::uint64_t seed, const Sampling& sampling) {
    return {{"temperature", sampling.temperature},
            {"top_p", 1},
            {"top_k", 0},
            {"min_p", 0},
            {"repetition_penalty", 1},
            {"presence_penalty", 0},
            {"frequency_penalty", 0},
            {"seed", seed & 0x7fffffffu},
            {"max_tokens", sampling.max_new_tokens},
            {"stop_token_ids", sampling.stop_tokens},
            {"ignore_eos", true},
            {"logprobs", 0}};  // that of the sampled token
}

float logprob_of(const json& value) {
    const auto logprob = value.get<float>();
    if (!std::isfinite(logprob) || logprob <= kNoLogprob)
        throw ProtocolError(fmt::format("a token has the log-prob {}", logprob));
    return logprob;
}

bool is_truncated(const json& choice) {
    const json reason = choice.value("finish_reason", json());
    if (reason != "stop" && reason != "length")
        throw ProtocolError("it ended with finish_reason " + reason.dump());
    return reason == "length";
}

// One span: a server that is updated pauses, and no answer goes on with other weights.
std::optional<std::string> weight_version_of(const json& choice) {
    const json spans = choice.value("weight_versions", json());
    if (spans.is_null() || spans.empty()) return std::nullopt;
    const auto version = spans.at(0).at("version").get<std::string>();
    for (const json& span : spans) {
        if (span.at("version") != version)
            throw ProtocolError("more than one weight version made it: " + spans.dump());
    }
    return version;
}

}  // namespace

const char* target_of(VllmRoute route) {
    return route == VllmRoute::generate ? "/inference/v1/generate" : "/v1/completions";
}

json vllm_request(VllmRoute route, std::span<const std::int32_t> prompt, std::uint64_t seed,
                  const Sampling& sampling) {
    json fields = sampling_fields(seed, sampling);
    if (route == VllmRoute::generate) {
        fields["detokenize"] = false;
        return {{"token_ids", prompt}, {"sampling_params", std::move(fields)}};
    }
    fields.update({{"prompt", prompt},
                   {"return_token_ids", true},
                   {"return_tokens_as_token_ids", true},
                   {"return_weight_versions", true}});  // 0.32 ignores what it does not know
    return fields;
}

VllmAnswer vllm_answer(VllmRoute route, const json& answer) {
    const json& choice = answer.at("choices").at(0);
    VllmAnswer result;
    Completion& completion = result.completion;
    completion.aborted = choice.value("finish_reason", json()) == "abort";
    if (completion.aborted) return result;
    completion.tokens = token_ids_of(choice.at("token_ids"));
    if (route == VllmRoute::generate) {
        for (const json& entry : choice.at("logprobs").at("content")) {
            const std::size_t at = completion.logprobs.size();
            if (at < completion.tokens.size() && entry.at("token_id") != completion.tokens[at])
                throw ProtocolError(fmt::format("log-prob {} is of another token", at));
            completion.logprobs.push_back(logprob_of(entry.at("logprob")));
        }
    } else {
        for (const json& logprob : choice.at("logprobs").at("token_logprobs"))
            completion.logprobs.push_back(logprob_of(logprob));
    }
    if (completion.tokens.empty() || completion.tokens.size() != completion.logprobs.size()) {
        throw ProtocolError(
            fmt::format("{} tokens with {} log-probs", completion.tokens.size(), completion.logprobs.size()));
    }
    completion.truncated = is_truncated(choice);
    result.weight_version = weight_version_of(choice);
    return result;
}

}  // namespace tandem::trainer
