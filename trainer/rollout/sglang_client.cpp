#include "trainer/rollout/sglang_client.h"

#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "common/error.h"
#include "common/http/access.h"
#include "common/json_text.h"
#include "common/log.h"
#include "common/trace.h"
#include "trainer/config/engine_url.h"
#include "trainer/rollout/aborted.h"
#include "trainer/rollout/sglang_answers.h"

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

// Of a sample: id, log-prob and text of each token, some 40 bytes, and what else is said of it.
std::size_t most_answer_bytes(const Sampling& sampling) {
    return 8192 + 256 * static_cast<std::size_t>(sampling.max_new_tokens);
}

}  // namespace

SglangClient::SglangClient(const std::string& url, const RolloutClientOptions& options)
    : others_(is_third_party(url)),
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

json SglangClient::post(const json& body, Deadline deadline) {
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
    const Deadline deadline = Deadline::after(deadline_);
    return ask_until_none_is_aborted(
        client_.url(), prompts, seeds, deadline, [&](auto some, auto their_seeds) {
            const json answers = post(request_body(some, their_seeds, sampling), deadline);
            try {
                return sglang_answers(answers, some.size(), sampling, version);
            } catch (const std::exception& error) {
                throw ProtocolError(fmt::format("engine {}: /generate: {}", client_.url(), error.what()));
            }
        });
}

}  // namespace tandem::trainer
