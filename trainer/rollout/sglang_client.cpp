#include "trainer/rollout/sglang_client.h"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "common/error.h"
#include "common/http/access.h"
#include "common/json_text.h"
#include "common/log.h"
#include "common/trace.h"
#include "trainer/config/engine_url.h"

namespace tandem::trainer {
namespace {

using nlohmann::json;

constexpr const char* kNotFinite = "the model's logits are not finite";  // in tandem-engine's words

json request_body(std::span<const std::vector<std::int32_t>> prompts, std::span<const std::uint64_t> seeds,
                  const Sampling& sampling) {
    json params = json::array();
    for (const std::uint64_t seed : seeds) {
        json p{{"temperature", sampling.temperature},
               {"max_new_tokens", sampling.max_new_tokens},
               {"sampling_seed", seed & 0x7fffffffu},  // SGLang keeps it in 32 bits
               // Whatever the server prefers.
               {"top_p", 1.0},
               {"top_k", -1},
               {"min_p", 0.0},
               {"frequency_penalty", 0.0},
               {"presence_penalty", 0.0},
               {"repetition_penalty", 1.0}};
        if (!sampling.stop_tokens.empty()) p["stop_token_ids"] = sampling.stop_tokens;
        params.push_back(std::move(p));
    }
    return {{"input_ids", prompts}, {"sampling_params", std::move(params)}, {"return_logprob", true}};
}

std::string version_of(const json& value) {  // SGLang writes it as text
    return value.is_string() ? value.get<std::string>() : std::to_string(value.get<std::int64_t>());
}

// A version that made some of the tokens and is not `wanted`; empty: none. SGLang tells the spans from 0.5.20 on.
std::string other_version(const json& meta, const std::string& wanted) {
    if (std::string last = version_of(meta.at("weight_version")); last != wanted) return last;
    for (const json& span : meta.value("weight_versions", json::array())) {
        if (std::string made_by = version_of(span.at("version")); made_by != wanted) return made_by;
    }
    return {};
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

// SGLang may cut the stop token off that ended an answer, but not off its log-probs.
void restore_stop_token(const json& logprobs, Completion& completion) {
    if (completion.tokens.size() + 1 != logprobs.size()) return;
    completion.tokens.push_back(logprobs.back().at(1).get<std::int32_t>());
}

// Of a sample: id, log-prob and text of each token, some 40 bytes, and what else is said of it.
std::size_t most_answer_bytes(const Sampling& sampling) {
    return 8192 + 256 * static_cast<std::size_t>(sampling.max_new_tokens);
}

Completion parse(const json& answer, const Sampling& sampling) {
    const json& meta = answer.at("meta_info");
    Completion result;
    result.tokens = answer.at("output_ids").get<std::vector<std::int32_t>>();
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

SglangClient::SglangClient(const std::string& url, const RolloutClientOptions& options)
    : others_(engine_of_others(url)),
      client_(http_url(url), http::key_from_environment(others_ ? "SGLANG_API_KEY" : "TANDEM_API_KEY")),
      deadline_(options.deadline),
      batch_(static_cast<std::size_t>(options.batch)) {
    if (others_) check_server();
}

void SglangClient::check_server() {
    const char* target = "/server_info";
    const http::Response response = client_.request("GET", target, "", Deadline::after(deadline_));
    if (response.status == 401) {
        throw TransportError(client_.url(), fmt::format("GET {}", target),
                             "HTTP 401: set SGLANG_API_KEY to the server's key");
    }
    const json info = json_text_or_nothing(response.body);
    const char* seeds = "enable_deterministic_inference";
    if (info.is_object() && info.contains(seeds) && info[seeds] == false) {
        log_warn(
            "{}: its samples do not follow seeds, so that no run repeats another: start the server with "
            "--enable-deterministic-inference",
            client_.url());
    }
}

json SglangClient::post(const json& body) {
    const Deadline deadline = Deadline::after(deadline_);
    try {
        return client_.post_json("/generate", body, deadline);
    } catch (const DeadlineExceeded&) {
        throw;
    } catch (const TransportError& error) {
        if (!others_ && std::string_view(error.what()).find(kNotFinite) != std::string_view::npos)
            throw NonFiniteLogits(error.peer(), error.phase(), kNotFinite);
        if (!others_ || !error.retryable()) throw;
    }
    return client_.post_json("/generate", body, deadline);
}

std::vector<Completion> SglangClient::generate(std::span<const std::vector<std::int32_t>> prompts,
                                               std::span<const std::uint64_t> seeds, const Sampling& sampling,
                                               std::int64_t version) {
    require(prompts.size() == seeds.size(), "{} prompts with {} seeds", prompts.size(), seeds.size());
    const trace::Scope scope("POST /generate", "rollout");
    client_.limit_answers(http::kMostStateBytes + prompts.size() * most_answer_bytes(sampling));
    const json answers = post(request_body(prompts, seeds, sampling));
    const auto refuse = [&](const std::string& what) {
        throw ProtocolError(fmt::format("engine {}: /generate: {}", client_.url(), what));
    };
    const std::string wanted = std::to_string(version);
    if (!answers.is_array() || answers.size() != prompts.size())
        refuse(fmt::format("expected a list of {} answers", prompts.size()));
    std::vector<Completion> result;
    for (const json& answer : answers) {
        std::string made_by;
        try {
            result.push_back(parse(answer, sampling));
            result.back().weight_version = version;
            made_by = other_version(answer.at("meta_info"), wanted);
        } catch (const std::exception& error) {
            refuse(fmt::format("answer {} is malformed: {}", result.size(), error.what()));
        }
        if (!made_by.empty()) {
            refuse(fmt::format("answer {} was made by weight version {}, not {}", result.size() - 1, made_by,
                               version));
        }
    }
    return result;
}

}  // namespace tandem::trainer
