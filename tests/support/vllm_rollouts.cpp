#include "tests/support/vllm_rollouts.h"

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>

#include "tests/support/vllm_stand_in.h"

namespace tandem::test {
namespace {

using nlohmann::json;
using Tokens = std::vector<std::int32_t>;

// What vLLM would answer with 400, or with other samples than a trainer means.
std::string complaint(const json& p, bool completions) {
    for (const char* key : {"seed", "max_tokens", "temperature", "stop_token_ids", "ignore_eos"}) {
        if (!p.contains(key)) return std::string("no ") + key;
    }
    if (p.value("logprobs", -1) != 0) return "logprobs";
    for (const auto& [key, neutral] : {std::pair<const char*, double>{"top_p", 1},
                                       {"top_k", 0},
                                       {"min_p", 0},
                                       {"repetition_penalty", 1}}) {
        if (p.value(key, -1.0) != neutral) return key;
    }
    if (completions && !p.value("return_token_ids", false)) return "return_token_ids";
    return {};
}

Sampled sampled_by(RolloutSampler& sampler, const Tokens& prompt, const json& p) {
    return sampler.complete(prompt, {.seed = p.at("seed").get<std::uint64_t>(),
                                     .max_tokens = p.at("max_tokens").get<std::size_t>(),
                                     .temperature = p.at("temperature").get<double>(),
                                     .stops = p.at("stop_token_ids").get<Tokens>(),
                                     .ignore_eos = p.at("ignore_eos").get<bool>()});
}

std::pair<int, std::string> refuse(int status, const std::string& why) {
    return {status, json{{"error", {{"message", why}}}}.dump()};
}

}  // namespace

void add_rollout_routes(VllmStandIn& server, const RolloutRoutes& options) {
    const auto sampler = std::make_shared<RolloutSampler>(held_by(server), options);
    const auto generate = [&server, sampler, on = options.scale_out](const http::Request& request) {
        if (!on) return refuse(403, "Scale-out endpoints are disabled.");
        const json body = json::parse(request.body, nullptr, false);
        if (!body.is_object() || !body.contains("token_ids") || !body.contains("sampling_params"))
            return refuse(400, "Field required");
        const json& p = body["sampling_params"];
        if (const std::string why = complaint(p, false); !why.empty()) return refuse(400, why);
        server.asked_to_generate();
        if (auto refusal = server.refusal_of_a_pause()) return *refusal;
        const Sampled answer = sampled_by(*sampler, body["token_ids"].get<Tokens>(), p);
        json content = json::array();
        for (std::size_t i = 0; i < answer.tokens.size(); ++i)
            content.push_back({{"token_id", answer.tokens[i]}, {"logprob", answer.logprobs[i]}});
        const json span{{"version", sampler->version()}, {"start", 0}, {"end", answer.tokens.size()}};
        const json choice{{"index", 0},
                          {"finish_reason", answer.stopped ? "stop" : "length"},
                          {"token_ids", answer.tokens},
                          {"weight_versions", {span}},
                          {"logprobs", {{"content", content}}}};
        return std::pair{200, json{{"choices", {choice}}}.dump()};
    };
    const auto complete = [&server, sampler](const http::Request& request) {
        const json body = json::parse(request.body, nullptr, false);
        if (!body.is_object() || !body.contains("prompt")) return refuse(400, "Field required");
        if (const std::string why = complaint(body, true); !why.empty()) return refuse(400, why);
        server.asked_to_generate();
        if (auto refusal = server.refusal_of_a_pause()) return *refusal;
        const Sampled answer = sampled_by(*sampler, body["prompt"].get<Tokens>(), body);
        const json choice{{"index", 0},
                          {"finish_reason", answer.stopped ? "stop" : "length"},
                          {"token_ids", answer.tokens},
                          {"logprobs", {{"token_logprobs", answer.logprobs}}}};
        return std::pair{200, json{{"choices", {choice}}}.dump()};
    };
    server.route("POST", "/inference/v1/generate", generate, http::Access::user);
    server.route("POST", "/v1/completions", complete, http::Access::user);
}

}  // namespace tandem::test
