// What servers answer to requests of ours: states, samples, errors, metrics, whatever the status. Every reader must return or
// refuse, and what is printed of it moves no cursor.
//   u8 status (mod 6), then the body
#include <array>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "common/error.h"
#include "common/http/error_text.h"
#include "common/http/metrics.h"
#include "common/json_text.h"
#include "tests/fuzz/target.h"
#include "trainer/rollout/sglang_answers.h"
#include "trainer/rollout/vllm_requests.h"

using namespace tandem;

namespace {

constexpr std::array kStatuses{200, 302, 400, 404, 500, 503};
constexpr JsonLimits kLimits{.depth = 64, .values = 4096};

template <typename Body>
void refused_or_read(const Body& body) {
    try {
        body();
    } catch (const std::exception&) {
    }
}

void check_text(const std::string& text) {
    for (const char c : text) {
        const auto byte = static_cast<unsigned char>(c);
        if ((byte < 0x20 && c != '\n' && c != '\t') || byte == 0x7F) std::abort();
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    if (size == 0) return 0;
    http::Response response;
    response.status = kStatuses[data[0] % kStatuses.size()];
    response.body.assign(reinterpret_cast<const char*>(data + 1), size - 1);
    if (response.status == 302) response.location = response.body;
    check_text(http::error_text(response));
    check_text(http::message_of(response.body));

    http::metric_value(response.body, "vllm:engine_sleep_state", "sleep_state=\"awake\"");
    refused_or_read([&] {
        // Copied, printed and compared, as callers do.
        const nlohmann::json answer = parse_json_text(response.body, kLimits);
        const nlohmann::json copy = answer;  // NOLINT: the copy is what is tried
        if (copy != answer || answer.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace).empty())
            std::abort();
    });
    refused_or_read([&] { parse_ordered_json_text(response.body, kLimits); });
    const nlohmann::json answer = json_text_or_nothing(response.body, kLimits);
    if (answer.is_discarded()) return 0;
    trainer::Sampling sampling;
    sampling.max_new_tokens = 4;
    sampling.stop_tokens = {2};
    for (const std::size_t prompts : {std::size_t{1}, std::size_t{2}})
        refused_or_read([&] { trainer::sglang_answers(answer, prompts, sampling, 7); });
    for (const auto route : {trainer::VllmRoute::generate, trainer::VllmRoute::completions})
        refused_or_read([&] { trainer::vllm_answer(route, answer); });
    return 0;
}

std::vector<std::string> fuzz_seeds() {
    const std::string ok(1, '\0'), error(1, '\4');
    return {
        ok +
            R"([{"text":"a","output_ids":[5,2],"meta_info":{"weight_version":"7","finish_reason":{"type":"stop","matched":2},)" +
            R"("output_token_logprobs":[[-0.5,5,null],[-0.25,2,null]],"weight_versions":[{"version":7}]}}])",
        ok +
            R"([{"output_ids":[5],"meta_info":{"weight_version":7,"output_token_logprobs":[[-0.5,5],[-1,2]]}},{}])",
        ok +
            R"({"choices":[{"token_ids":[5,2],"finish_reason":"stop","logprobs":{"content":[{"token":"token_id:5","logprob":-0.5}]}}],)" +
            R"("weight_version":"7"})",
        ok +
            R"({"choices":[{"text":"a","token_ids":[5],"finish_reason":"length","logprobs":{"token_logprobs":[-0.5],"tokens":["token_id:5"]}}]})",
        ok + "vllm:engine_sleep_state{sleep_state=\"awake\",engine=\"0\"} 1.0\n",
        error + R"({"error":{"message":"no room","code":503}})",
        error + R"({"detail":[{"loc":["body"],"msg":"x"}]})",
        error + "{\"detail\":" + std::string(3000, '[') + std::string(3000, ']') + "}",
        error + "\x1b]0;title\x07\xe2\x80\xae vllm://prod updated"};
}
