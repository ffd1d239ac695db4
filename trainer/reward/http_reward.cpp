#include "trainer/reward/http_reward.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <exception>
#include <mutex>
#include <nlohmann/json.hpp>
#include <thread>

#include "common/error.h"
#include "common/http/client.h"
#include "common/http/error_text.h"
#include "common/json_text.h"
#include "common/thread.h"
#include "common/trace.h"

namespace tandem::trainer {
namespace {

using nlohmann::json;

constexpr std::chrono::milliseconds kFirstPause{100};
constexpr std::chrono::milliseconds kLongestPause{5'000};
constexpr std::size_t kMaxAnswerBytes = std::size_t{64} << 20;  // of scores: some 20 bytes a sample

json body_of(std::span<const AnsweredPrompt> answered) {
    json samples = json::array();
    for (const AnsweredPrompt& one : answered) {
        samples.push_back({{"prompt", one.prompt},
                           {"completion", one.completion},
                           {"answer", one.answer},
                           {"truncated", one.truncated}});
    }
    return {{"samples", std::move(samples)}};
}

// JSON with the words that Python's json writes for what JSON cannot say; they become null.
json parse_with_nan(const std::string& body) {
    json answer = json_text_or_nothing(body);
    if (!answer.is_discarded()) return answer;
    std::string plain;
    bool quoted = false;
    for (std::size_t at = 0; at < body.size(); ++at) {
        const std::string_view rest = std::string_view(body).substr(at);
        const std::string_view words[] = {"-Infinity", "Infinity", "NaN"};
        const auto word = std::find_if(std::begin(words), std::end(words), [&](std::string_view one) {
            return !quoted && rest.starts_with(one);
        });
        if (word != std::end(words)) {
            plain += "null";
            at += word->size() - 1;
            continue;
        }
        if (quoted && body[at] == '\\' && at + 1 < body.size())
            plain += body[at++];
        else if (body[at] == '"')
            quoted = !quoted;
        plain += body[at];
    }
    return json_text_or_nothing(plain);
}

std::vector<double> parse_scores(const std::string& url, const std::string& body, std::size_t count) {
    const auto refuse = [&](const std::string& what) {
        throw ProtocolError(fmt::format("reward server {}: {}", url, what));
    };
    const json answer = parse_with_nan(body);
    if (answer.is_discarded()) refuse("the answer is not JSON: " + body.substr(0, 200));
    if (!answer.is_object() || !answer.contains("scores") || !answer["scores"].is_array())
        refuse("the answer has no list \"scores\"");
    const json& list = answer["scores"];
    if (list.size() != count)
        refuse(fmt::format("\"scores\" has {} numbers for {} samples", list.size(), count));
    std::vector<double> result;
    for (std::size_t i = 0; i < count; ++i) {
        if (!list[i].is_number() && !list[i].is_null())
            refuse(fmt::format("scores[{}] is {}, not a number", i, list[i].dump()));
        // null is what most libraries write for a NaN.
        result.push_back(list[i].is_null() ? NAN : list[i].get<double>());
    }
    return result;
}

bool worth_another_try(int status) {
    return status == 408 || status == 429 || status >= 500;
}

// One batch, sent until it is answered. What went wrong last is in the error.
std::vector<double> ask(http::Client& client, std::span<const AnsweredPrompt> answered,
                        std::chrono::milliseconds timeout, Deadline deadline,
                        const std::atomic<bool>& given_up) {
    const std::string body = text_of_json(body_of(answered));
    const std::string target = http::parse_url(client.url()).prefix.empty() ? "/" : "";
    std::string last;
    auto pause = kFirstPause;
    for (int tries = 1;; ++tries) {
        try {
            const Deadline one =
                Deadline::after(std::min<std::chrono::nanoseconds>(deadline.left(), timeout));
            const http::Response answer = client.request("POST", target, body, one);
            if (answer.status >= 200 && answer.status < 300)
                return parse_scores(client.url(), answer.body, answered.size());
            last = http::error_text(answer);
            if (!worth_another_try(answer.status))
                throw TransportError(client.url(), "ask for rewards", last);
        } catch (const TransportError& error) {
            if (!error.retryable()) throw;
            last = error.what();
        }
        if (given_up) return {};  // another request has failed for good
        if (deadline.left() <= pause) {
            throw DeadlineExceeded(client.url(), "ask for rewards",
                                   fmt::format("no scores after {} tries; last: {}", tries, last));
        }
        std::this_thread::sleep_for(pause);
        pause = std::min(pause * 2, kLongestPause);
    }
}

}  // namespace

HttpReward::HttpReward(RewardOptions options) : options_(std::move(options)) {
    http::parse_url(options_.rule);
}

std::string HttpReward::complaint(const std::string&) const {
    return {};  // what an answer means is the server's affair
}

std::vector<double> HttpReward::scores(std::span<const AnsweredPrompt> answered) const {
    const Deadline deadline = Deadline::after(options_.deadline);
    const auto batch = static_cast<std::size_t>(options_.batch);
    const std::size_t requests = (answered.size() + batch - 1) / batch;
    std::vector<double> result(answered.size());
    std::atomic<std::size_t> next{0};
    std::atomic<bool> failed{false};
    std::exception_ptr failure;
    std::mutex failure_lock;

    const auto work = [&](std::size_t) {
        http::Client client(options_.rule, "", kMaxAnswerBytes);
        for (std::size_t i = next++; i < requests && !failed; i = next++) {
            const trace::Scope scope("POST rewards", "rollout");
            const auto part = answered.subspan(i * batch, std::min(batch, answered.size() - i * batch));
            try {
                const auto scores = ask(client, part, options_.timeout, deadline, failed);
                std::copy(scores.begin(), scores.end(),
                          result.begin() + static_cast<std::ptrdiff_t>(i * batch));
            } catch (...) {
                const std::lock_guard guard(failure_lock);
                if (!failed.exchange(true)) failure = std::current_exception();
            }
        }
    };
    run_on_threads(std::min(requests, static_cast<std::size_t>(options_.connections)),
                   "that asks for rewards", work);
    if (failure) std::rethrow_exception(failure);
    return result;
}

}  // namespace tandem::trainer
