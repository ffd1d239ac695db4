#include "trainer/rollout/sglang_client.h"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "common/error.h"
#include "common/http/access.h"
#include "common/trace.h"

namespace tandem::trainer {
namespace {

using nlohmann::json;

json request_body(std::span<const std::vector<std::int32_t>> prompts, std::span<const std::uint64_t> seeds,
                  const Sampling& sampling) {
    json params = json::array();
    for (const std::uint64_t seed : seeds) {
        json p{{"temperature", sampling.temperature},
               {"max_new_tokens", sampling.max_new_tokens},
               {"sampling_seed", seed & 0x7fffffffu}};  // SGLang keeps it in 32 bits
        if (!sampling.stop_tokens.empty()) p["stop_token_ids"] = sampling.stop_tokens;
        params.push_back(std::move(p));
    }
    return {{"input_ids", prompts}, {"sampling_params", std::move(params)}, {"return_logprob", true}};
}

std::int64_t version_of(const json& value) {  // SGLang writes it as text
    return value.is_string() ? std::stoll(value.get<std::string>()) : value.get<std::int64_t>();
}

// {"type": "stop" | "length" | "abort"}; an engine that does not say is judged by what it sent.
bool is_truncated(const json& meta, const Completion& completion, const Sampling& sampling) {
    const json reason = meta.value("finish_reason", json());
    if (reason.is_null()) {
        const auto& stops = sampling.stop_tokens;
        return std::find(stops.begin(), stops.end(), completion.tokens.back()) == stops.end();
    }
    const auto type = reason.at("type").get<std::string>();
    if (type != "stop" && type != "length") throw ProtocolError("it ended with finish_reason " + type);
    return type == "length";
}

Completion parse(const json& answer, const Sampling& sampling) {
    const json& meta = answer.at("meta_info");
    Completion result;
    result.tokens = answer.at("output_ids").get<std::vector<std::int32_t>>();
    for (const json& entry : meta.at("output_token_logprobs"))
        result.logprobs.push_back(entry.at(0).get<float>());
    result.weight_version = version_of(meta.at("weight_version"));
    if (result.tokens.empty() || result.tokens.size() != result.logprobs.size()) {
        throw ProtocolError(
            fmt::format("{} tokens with {} log-probs", result.tokens.size(), result.logprobs.size()));
    }
    result.truncated = is_truncated(meta, result, sampling);
    return result;
}

}  // namespace

SglangClient::SglangClient(const std::string& url, const RolloutClientOptions& options)
    : client_(url, http::key_from_environment()),
      deadline_(options.deadline),
      batch_(static_cast<std::size_t>(options.batch)) {}

std::vector<Completion> SglangClient::generate(std::span<const std::vector<std::int32_t>> prompts,
                                               std::span<const std::uint64_t> seeds, const Sampling& sampling,
                                               std::int64_t version) {
    require(prompts.size() == seeds.size(), "{} prompts with {} seeds", prompts.size(), seeds.size());
    const trace::Scope scope("POST /generate", "rollout");
    const json answers =
        client_.post_json("/generate", request_body(prompts, seeds, sampling), Deadline::after(deadline_));
    const auto refuse = [&](const std::string& what) {
        throw ProtocolError(fmt::format("engine {}: /generate: {}", client_.url(), what));
    };
    if (!answers.is_array() || answers.size() != prompts.size())
        refuse(fmt::format("expected a list of {} answers", prompts.size()));
    std::vector<Completion> result;
    for (const json& answer : answers) {
        try {
            result.push_back(parse(answer, sampling));
        } catch (const std::exception& error) {
            refuse(fmt::format("answer {} is malformed: {}", result.size(), error.what()));
        }
        const std::int64_t made_by = result.back().weight_version;
        if (made_by != version) {
            refuse(fmt::format("answer {} was made by weight version {}, not {}", result.size() - 1, made_by,
                               version));
        }
    }
    return result;
}

}  // namespace tandem::trainer
