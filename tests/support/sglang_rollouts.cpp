#include "tests/support/sglang_rollouts.h"

#include <array>
#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>

#include "engine_adapter/http_api/versions.h"
#include "tests/support/sglang_stand_in.h"

namespace tandem::test {
namespace {

using nlohmann::json;
using Tokens = std::vector<std::int32_t>;

// What SGLang would answer with 400, or with other samples than a trainer means.
std::string complaint(const json& body) {
    const json& prompts = body["input_ids"];
    const json& params = body["sampling_params"];
    if (!prompts.is_array() || prompts.empty() || !prompts[0].is_array()) return "input_ids of one prompt";
    if (!params.is_array() || params.size() != prompts.size()) return "sampling_params of other prompts";
    if (body.value("return_logprob", false) != true) return "return_logprob";
    const std::set<std::string> known{
        "temperature",       "max_new_tokens",   "sampling_seed",      "top_p",         "top_k", "min_p",
        "frequency_penalty", "presence_penalty", "repetition_penalty", "stop_token_ids"};
    for (const json& p : params) {
        for (const auto& [key, value] : p.items()) {
            if (!known.contains(key)) return "Unexpected keyword argument '" + key + "'";
        }
        for (const char* key : {"temperature", "max_new_tokens", "sampling_seed", "stop_token_ids"}) {
            if (!p.contains(key)) return std::string("no ") + key;
        }
        for (const auto& [key, neutral] : {std::pair<const char*, double>{"top_p", 1},
                                           {"top_k", -1},
                                           {"min_p", 0},
                                           {"frequency_penalty", 0},
                                           {"presence_penalty", 0},
                                           {"repetition_penalty", 1}}) {
            if (p.value(key, -2.0) != neutral) return key;
        }
    }
    return {};
}

json answer_to(RolloutSampler& sampler, const Tokens& prompt, const json& p, bool spans) {
    const Sampled sampled = sampler.complete(prompt, {.seed = p.at("sampling_seed").get<std::uint64_t>(),
                                                      .max_tokens = p.at("max_new_tokens").get<std::size_t>(),
                                                      .temperature = p.at("temperature").get<double>(),
                                                      .stops = p.at("stop_token_ids").get<Tokens>()});
    json logprobs = json::array();
    for (std::size_t i = 0; i < sampled.tokens.size(); ++i)
        logprobs.push_back({sampled.logprobs[i], sampled.tokens[i], nullptr});
    json reason{{"type", "length"}, {"length", sampled.tokens.size()}};
    if (sampled.stopped) reason = {{"type", "stop"}, {"matched", sampled.tokens.back()}};
    json meta{{"finish_reason", reason},
              {"output_token_logprobs", logprobs},
              {"completion_tokens", sampled.tokens.size()},
              {"weight_version", sampler.version()}};
    if (spans) {
        const json span{{"version", sampler.version()}, {"start", 0}, {"end", sampled.tokens.size()}};
        meta["weight_versions"] = json::array({span});
    }
    return {{"text", ""}, {"output_ids", sampled.tokens}, {"meta_info", meta}};
}

}  // namespace

void add_rollout_routes(SglangStandIn& server, const RolloutRoutes& options) {
    const auto sampler = std::make_shared<RolloutSampler>(held_by(server), options);
    const bool spans = engine::version_numbers(server.version()) >= std::array{0, 5, 20};
    server.route(
        "POST", "/generate",
        {{"input_ids", "any", true}, {"sampling_params", "any", true}, {"return_logprob", "boolean"}},
        [=, &server](const json& body, const std::string&) -> SglangStandIn::Answer {
            for (const char* tag : {"weights", "kv_cache"})
                if (server.asleep(tag)) server.violate(std::string("asked while it sleeps: ") + tag);
            if (const std::string why = complaint(body); !why.empty())
                return {400, json{{"error", {{"message", why}}}}.dump()};
            json answers = json::array();
            for (std::size_t i = 0; i < body["input_ids"].size(); ++i) {
                answers.push_back(answer_to(*sampler, body["input_ids"][i].get<Tokens>(),
                                            body["sampling_params"][i], spans));
            }
            return {200, answers.dump()};
        },
        http::Access::user);
}

}  // namespace tandem::test
