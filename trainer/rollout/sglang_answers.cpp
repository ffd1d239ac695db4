#include "trainer/rollout/sglang_answers.h"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>

#include "common/error.h"
#include "common/json_text.h"

namespace tandem::trainer {
namespace {

using nlohmann::json;

std::string version_of(const json& value) {  // SGLang writes it as text
    return value.is_string() ? value.get<std::string>() : std::to_string(integer_of(value));
}

// A version that made some of the tokens and is not `wanted`; empty: none. SGLang tells the spans from 0.5.20 on.
std::string other_version(const json& meta, const std::string& wanted) {
    if (std::string last = version_of(meta.at("weight_version")); last != wanted) return last;
    for (const json& span : meta.value("weight_versions", json::array())) {
        if (std::string made_by = version_of(span.at("version")); made_by != wanted) return made_by;
    }
    return {};
}

bool is_aborted(const json& meta) {
    const json reason = meta.value("finish_reason", json());
    return reason.is_object() && reason.value("type", json()) == "abort";
}

// {"type": "stop" | "length"}; an engine that does not say is judged by what it sent.
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

// SGLang may cut the stop token off that ended an answer, but not off its log-probs.
void restore_stop_token(const json& logprobs, Completion& completion) {
    if (completion.tokens.size() + 1 != logprobs.size()) return;
    completion.tokens.push_back(token_ids_of(json::array({logprobs.back().at(1)})).front());
}

Completion parse(const json& answer, const Sampling& sampling) {
    const json& meta = answer.at("meta_info");
    Completion result;
    result.aborted = is_aborted(meta);
    if (result.aborted) return result;
    result.tokens = token_ids_of(answer.at("output_ids"));
    for (const json& entry : meta.at("output_token_logprobs"))
        result.logprobs.push_back(entry.at(0).get<float>());
    restore_stop_token(meta.at("output_token_logprobs"), result);
    if (result.tokens.empty() || result.tokens.size() != result.logprobs.size()) {
        throw ProtocolError(
            fmt::format("{} tokens with {} log-probs", result.tokens.size(), result.logprobs.size()));
    }
    result.truncated = is_truncated(meta, result, sampling);
    return result;
}

}  // namespace

std::vector<Completion> sglang_answers(const json& answers, std::size_t prompts, const Sampling& sampling,
                                       std::int64_t version) {
    if (!answers.is_array() || answers.size() != prompts)
        throw ProtocolError(fmt::format("expected a list of {} answers", prompts));
    const std::string wanted = std::to_string(version);
    std::vector<Completion> result;
    for (const json& answer : answers) {
        std::string made_by;
        try {
            result.push_back(parse(answer, sampling));
            if (result.back().aborted) continue;
            result.back().weight_version = version;
            made_by = other_version(answer.at("meta_info"), wanted);
        } catch (const std::exception& error) {
            throw ProtocolError(fmt::format("answer {} is malformed: {}", result.size(), error.what()));
        }
        if (!made_by.empty()) {
            throw ProtocolError(fmt::format("answer {} was made by weight version {}, not {}",
                                            result.size() - 1, made_by, version));
        }
    }
    return result;
}

}  // namespace tandem::trainer
