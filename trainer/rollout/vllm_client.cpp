#include "trainer/rollout/vllm_client.h"

#include <fmt/core.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <nlohmann/json.hpp>

#include "common/error.h"
#include "common/http/access.h"
#include "common/http/error_text.h"
#include "common/http/unavailable.h"
#include "common/json_text.h"
#include "common/log.h"
#include "common/thread.h"
#include "common/trace.h"
#include "trainer/config/engine_url.h"
#include "trainer/rollout/aborted.h"

namespace tandem::trainer {
namespace {

using nlohmann::json;

constexpr std::size_t kConnections = 128;  // and requests at once
constexpr std::size_t kLargestAnswer = std::size_t{64} << 20;

}  // namespace

VllmClient::VllmClient(const std::string& url, const RolloutClientOptions& options)
    : url_(url),
      key_(http::key_from_environment("VLLM_API_KEY")),
      deadline_(options.deadline),
      batch_(static_cast<std::size_t>(options.batch)) {
    const Deadline deadline = Deadline::after(deadline_);
    clients_.emplace_back(http_url(url_), key_, kLargestAnswer);
    check_server(options.temperature, deadline);
    route_ = find_route(deadline);
    log_info("{}: rollouts by {}", url_, target_of(route_));
}

http::Response VllmClient::ask(http::Client& client, const std::string& method, const std::string& target,
                               const std::string& body, Deadline deadline) const {
    try {
        return client.request(method, target, body, deadline);
    } catch (const DeadlineExceeded& error) {
        throw DeadlineExceeded(url_, method + " " + target, "no answer within engine.deadline_s", true);
    } catch (const TransportError& error) {
        if (!error.retryable()) throw;
    }
    return client.request(method, target, body, deadline);
}

json VllmClient::checked(const std::string& phase, const http::Response& response) const {
    if (response.status < 200 || response.status >= 300) {
        std::string why = http::error_text(response);
        if (response.status == 401) {
            why += key_.empty() ? "; set VLLM_API_KEY" : "; the key in VLLM_API_KEY is not this server's";
        } else if (response.status == 404) {
            why += "; the route is there in development mode: start the server with VLLM_SERVER_DEV_MODE=1";
        }
        throw TransportError(url_, phase, why);
    }
    try {
        return parse_json_text(response.body, {.values = kLargestAnswer / 16});
    } catch (const BadInput& error) {
        throw ProtocolError(fmt::format("{}: {}: the answer {}", url_, phase, error.what()));
    }
}

// What a server that was started otherwise would do wrong, as far as it says how it was (in development mode).
void VllmClient::check_server(double temperature, Deadline deadline) {
    const std::string target = "/server_info?config_format=json";
    const http::Response response = ask(clients_[0], "GET", target, "", deadline);
    if (response.status == 404) return;  // not in development mode: what pushes weights says so
    const json info = checked("GET " + target, response);
    const auto said = [&](const char* key) {
        const json::json_pointer where(std::string("/vllm_config/") + key);
        return info.is_object() && info.contains(where) ? info[where] : json();
    };
    // Log-probs are of softmax(logits / temperature) here; vLLM's are of softmax(logits) unless it is told otherwise.
    const json mode = said("model_config/logprobs_mode");
    if (mode.is_string() && mode != "processed_logprobs" && (mode != "raw_logprobs" || temperature != 1)) {
        throw Error(
            fmt::format("{}: it answers with {}, which are not the log-probs that it samples by at "
                        "temperature {} (grpo.temperature): start the server with "
                        "--logprobs-mode processed_logprobs",
                        url_, mode.get<std::string>(), temperature));
    }
    // 0.32 there takes a step back in the generator of a prompt that was not read to its end, which only a GPU's can.
    if (said("device_config/device_type") == "cpu" &&
        said("scheduler_config/enable_chunked_prefill") == true) {
        throw Error(fmt::format(
            "{}: vLLM on the CPU ends (\"CPU Generator does not use offset\") when it samples with "
            "seeds and reads prompts in chunks: start the server with "
            "--no-enable-chunked-prefill",
            url_));
    }
}

// An empty request: refused as malformed where the route is there.
VllmRoute VllmClient::find_route(Deadline deadline) {
    const char* target = target_of(VllmRoute::generate);
    const http::Response response = ask(clients_[0], "POST", target, "{}", deadline);
    if (response.status == 403 || response.status == 404) return VllmRoute::completions;
    if (response.status != 400 && response.status != 422) checked(fmt::format("POST {}", target), response);
    return VllmRoute::generate;
}

std::string VllmClient::weight_version(Deadline deadline) {
    const json info = checked("GET /weight_info", ask(clients_[0], "GET", "/weight_info", "", deadline));
    const json version = info.is_object() ? info.value("weight_version", json()) : json();
    if (!version.is_string())
        throw ProtocolError(fmt::format("{}: GET /weight_info: the answer has no \"weight_version\"", url_));
    return version.get<std::string>();
}

std::vector<VllmAnswer> VllmClient::ask_all(std::span<const std::vector<std::int32_t>> prompts,
                                            std::span<const std::uint64_t> seeds, const Sampling& sampling,
                                            Deadline deadline) {
    const std::string target = target_of(route_);
    const std::size_t connections = std::min(prompts.size(), kConnections);
    while (clients_.size() < connections) clients_.emplace_back(http_url(url_), key_, kLargestAnswer);
    std::vector<VllmAnswer> answers(prompts.size());
    std::atomic<std::size_t> next{0};
    std::atomic<bool> failed{false};
    std::exception_ptr failure;
    std::mutex failure_lock;

    const auto complete = [&](http::Client& client, std::size_t i) {
        const std::string body = vllm_request(route_, prompts[i], seeds[i], sampling).dump();
        const auto ask_once = [&] {
            http::Response response = ask(client, "POST", target, body, deadline);
            if (response.status == http::kUnavailable && !told_unavailable_.exchange(true))
                log_warn("{}: {} is asked again until it is taken: {}", url_, target,
                         http::error_text(response));
            return response;
        };
        const json answer = checked("POST " + target, http::ask_until_available(ask_once, deadline, &failed));
        try {
            answers[i] = vllm_answer(route_, answer);
        } catch (const std::exception& error) {
            throw ProtocolError(
                fmt::format("{}: {}: answer {} is malformed: {}", url_, target, i, error.what()));
        }
    };
    const auto work = [&](std::size_t connection) {
        for (std::size_t i = next++; i < prompts.size() && !failed; i = next++) {
            try {
                complete(clients_[connection], i);
            } catch (...) {
                const std::lock_guard guard(failure_lock);
                if (!failed.exchange(true)) failure = std::current_exception();
            }
        }
    };
    run_on_threads(connections, "of a connection to vLLM", work);
    if (failure) std::rethrow_exception(failure);
    return answers;
}

std::vector<Completion> VllmClient::generate(std::span<const std::vector<std::int32_t>> prompts,
                                             std::span<const std::uint64_t> seeds, const Sampling& sampling,
                                             std::int64_t version) {
    require(prompts.size() == seeds.size(), "{} prompts with {} seeds", prompts.size(), seeds.size());
    const trace::Scope scope("POST completions", "rollout");
    const Deadline deadline = Deadline::after(deadline_);
    return ask_until_none_is_aborted(url_, prompts, seeds, deadline, [&](auto some, auto their_seeds) {
        return generate_once(some, their_seeds, sampling, version, deadline);
    });
}

std::vector<Completion> VllmClient::generate_once(std::span<const std::vector<std::int32_t>> prompts,
                                                  std::span<const std::uint64_t> seeds,
                                                  const Sampling& sampling, std::int64_t version,
                                                  Deadline deadline) {
    const std::string wanted = std::to_string(version);
    const auto hold_to_version = [&](const std::string& who, const std::string& found) {
        if (found == wanted) return;
        throw ProtocolError(fmt::format("{}: {} weight version '{}', not {}", url_, who, found, version));
    };
    hold_to_version("it serves", weight_version(deadline));
    std::vector<VllmAnswer> answers = ask_all(prompts, seeds, sampling, deadline);
    bool told = true;
    std::vector<Completion> result;
    for (VllmAnswer& answer : answers) {
        if (answer.weight_version)
            hold_to_version(fmt::format("answer {} was made by", result.size()), *answer.weight_version);
        else if (!answer.completion.aborted)
            told = false;
        answer.completion.weight_version = version;
        result.push_back(std::move(answer.completion));
    }
    if (!told) hold_to_version("it was updated while it answered: it serves", weight_version(deadline));
    return result;
}

}  // namespace tandem::trainer
