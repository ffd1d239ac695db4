// The rollout client against a server that speaks vLLM's two routes of token ids: which one it takes, what it sends,
// what it accepts, and what it says of a server that fails.
#include <gmock/gmock.h>

#include <atomic>
#include <cstdlib>
#include <mutex>
#include <nlohmann/json.hpp>

#include "common/error.h"
#include "common/http/server.h"
#include "trainer/rollout/vllm_client.h"

namespace tandem::trainer {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;

constexpr const char* kPausedText = "Generation is paused. Please retry after it resumes.";

struct Ways {
    bool scale_out = true;
    bool tells_version = true;
    std::string api_key = {};
    json server_info = json::object();
    std::function<void(json& choice)> spoil = {};
    int status = 200;                       // of completions; 0: never answers
    int refused = 0;                        // so many of the first, as one that is paused does since 0.33
    bool completions_tell_version = false;  // where they are asked to, since 0.33
};

// Answers each prompt with its last token and 12, and log-prob -0.1 times the seed.
struct FakeVllm {
    explicit FakeVllm(Ways chosen = {})
        : ways(std::move(chosen)), server({.listen = "127.0.0.1:0", .api_key = ways.api_key}) {
        server.route("GET", "/server_info", [this](const http::Request&, http::Responder respond) {
            respond.send(200, ways.server_info);
        });
        server.route("GET", "/weight_info", [this](const http::Request&, http::Responder respond) {
            respond.send(200, json{{"weight_version",
                                    version_after > 0 && asked > 0 ? std::to_string(version_after) : "3"}});
        });
        server.route(
            "POST", "/inference/v1/generate",
            [this](const http::Request& request, http::Responder respond) {
                if (!ways.scale_out) return respond.send(403, json{{"error", {{"message", "disabled"}}}});
                const json body = json::parse(request.body);
                if (body.empty()) return respond.send(400, json{{"error", {{"message", "Field required"}}}});
                answer(body, body["sampling_params"], body["token_ids"].back(), true, std::move(respond));
            },
            http::Access::user);
        server.route(
            "POST", "/v1/completions",
            [this](const http::Request& request, http::Responder respond) {
                const json body = json::parse(request.body);
                answer(body, body, body["prompt"].back(), false, std::move(respond));
            },
            http::Access::user);
        server.start();
    }
    ~FakeVllm() { server.stop(); }

    void answer(const json& body, const json& params, const json& last, bool generate,
                http::Responder respond) {
        const std::lock_guard lock(mutex);
        ++asked;
        requests.push_back(body);
        if (asked <= ways.refused) return respond.send(503, json{{"error", {{"message", kPausedText}}}});
        if (ways.status == 0) return never.push_back(std::move(respond));
        if (ways.status != 200) return respond.send(ways.status, json{{"error", {{"message", "no room"}}}});
        const double logprob = -0.1 * params["seed"].get<double>();
        json choice{{"finish_reason", "stop"}, {"token_ids", {last, 12}}};
        if (generate) {
            choice["logprobs"]["content"] = {{{"token_id", last}, {"logprob", logprob}},
                                             {{"token_id", 12}, {"logprob", -0.25}}};
            choice["weight_versions"] =
                ways.tells_version ? json{{{"version", "3"}, {"start", 0}, {"end", 2}}} : json();
        } else {
            choice["logprobs"]["token_logprobs"] = {logprob, -0.25};
            if (ways.completions_tell_version && body.value("return_weight_versions", false))
                choice["weight_versions"] = {{{"version", "3"}, {"start", 0}, {"end", 2}}};
        }
        if (ways.spoil) ways.spoil(choice);
        respond.send(200, json{{"choices", {choice}}});
    }
    std::string url() const { return "vllm" + server.url().substr(4); }

    Ways ways;
    std::mutex mutex;
    std::atomic<int> asked{0};
    std::atomic<int> version_after{0};  // once something was asked; 0: 3
    std::vector<json> requests;
    std::vector<http::Responder> never;
    http::Server server;
};

const std::vector<std::vector<std::int32_t>> kVllmPrompts = {{1, 2}, {3}, {4, 5, 6}, {7}, {8}};
const std::vector<std::uint64_t> kVllmSeeds = {1, 2, 3, 4, 5};
const Sampling kSampling{0.5, 3, {12}};

std::vector<Completion> ask(const FakeVllm& server, std::int64_t version = 3,
                            std::chrono::milliseconds deadline = std::chrono::seconds(60)) {
    const auto client =
        make_rollout_client(server.url(), {.deadline = deadline, .batch = 16, .temperature = 0.5});
    return client->generate(kVllmPrompts, kVllmSeeds, kSampling, version);
}

template <typename Kind = Error>
std::string error_of(const FakeVllm& server, std::int64_t version = 3,
                     std::chrono::milliseconds deadline = std::chrono::seconds(60)) {
    try {
        ask(server, version, deadline);
    } catch (const Kind& error) {
        return error.what();
    }
    return "accepted";
}

TEST(VllmClient, EachPromptIsARequestOfItsOwnByEitherRoute) {
    for (const bool scale_out : {true, false}) {
        SCOPED_TRACE(scale_out);
        FakeVllm server({.scale_out = scale_out});
        const auto result = ask(server);
        ASSERT_EQ(result.size(), 5u);
        for (std::size_t i = 0; i < 5; ++i) {
            const Completion expected{
                {kVllmPrompts[i].back(), 12}, {-0.1f * static_cast<float>(kVllmSeeds[i]), -0.25f}, 3, false};
            EXPECT_EQ(result[i].tokens, expected.tokens);
            EXPECT_FLOAT_EQ(result[i].logprobs[0], expected.logprobs[0]);
            EXPECT_EQ(result[i].weight_version, 3);
            EXPECT_FALSE(result[i].truncated);
        }
        ASSERT_EQ(server.requests.size(), 5u);
        for (const json& request : server.requests) {
            const json& p = scale_out ? request["sampling_params"] : request;
            EXPECT_EQ(p["temperature"], 0.5);
            EXPECT_EQ(p["max_tokens"], 3);
            EXPECT_EQ(p["stop_token_ids"], json({12}));
            EXPECT_EQ(p["ignore_eos"], true);
            EXPECT_EQ(p["logprobs"], 0);
            EXPECT_EQ(p["top_p"], 1);  // whatever the model's generation_config.json says
            EXPECT_EQ(request.value("return_token_ids", false), !scale_out);
        }
    }
}

TEST(VllmClient, RefusesSamplesOfOtherWeights) {
    EXPECT_THAT(error_of<ProtocolError>(FakeVllm(), 4), HasSubstr("serves weight version '3', not 4"));
    FakeVllm other({.spoil = [](json& choice) { choice["weight_versions"][0]["version"] = "2"; }});
    EXPECT_THAT(error_of<ProtocolError>(other), HasSubstr("was made by weight version '2', not 3"));
    FakeVllm mixed({.spoil = [](json& choice) {
        choice["weight_versions"].push_back({{"version", "4"}, {"start", 1}, {"end", 2}});
    }});
    EXPECT_THAT(error_of<ProtocolError>(mixed), HasSubstr("more than one weight version"));
    for (const bool scale_out : {true, false}) {  // neither answer says it
        FakeVllm updated({.scale_out = scale_out, .tells_version = false});
        EXPECT_EQ(error_of(updated), "accepted");
        updated.asked = 0;
        updated.version_after = 4;
        EXPECT_THAT(error_of<ProtocolError>(updated),
                    AllOf(HasSubstr("updated while it answered"), HasSubstr("'4', not 3")));
    }
}

TEST(VllmClient, RefusesMalformedAnswers) {
    const auto error_with = [](bool scale_out, std::function<void(json&)> spoil) {
        FakeVllm server({.scale_out = scale_out, .spoil = std::move(spoil)});
        return error_of<ProtocolError>(server);
    };
    for (const bool scale_out : {true, false}) {
        EXPECT_THAT(error_with(scale_out, [](json& c) { c.erase("token_ids"); }), HasSubstr("malformed"));
        EXPECT_THAT(error_with(scale_out, [](json& c) { c["token_ids"].push_back(5); }),
                    HasSubstr("3 tokens with 2 log-probs"));
        EXPECT_THAT(error_with(scale_out, [](json& c) { c["finish_reason"] = "repetition"; }),
                    HasSubstr("finish_reason \"repetition\""));
        EXPECT_THAT(error_with(scale_out, [](json& c) { c["logprobs"] = nullptr; }), HasSubstr("malformed"));
    }
    EXPECT_THAT(error_with(true, [](json& c) { c["logprobs"]["content"][1]["logprob"] = -9999.0; }),
                HasSubstr("a token has the log-prob -9999"));
    EXPECT_THAT(error_with(true, [](json& c) { c["logprobs"]["content"][1]["token_id"] = 13; }),
                HasSubstr("log-prob 1 is of another token"));
    EXPECT_THAT(error_with(false, [](json& c) { c["logprobs"]["token_logprobs"][1] = nullptr; }),
                HasSubstr("malformed"));
}

TEST(VllmClient, AsksAgainForWhatWasAborted) {
    for (const bool scale_out : {true, false}) {
        std::atomic<int> asked{0};
        FakeVllm server({.scale_out = scale_out, .spoil = [&](json& choice) {
                             if (++asked > 2) return;
                             choice = {{"finish_reason", "abort"}, {"token_ids", json::array()}};
                         }});
        const auto result = ask(server);
        EXPECT_EQ(asked, 7);
        for (std::size_t i = 0; i < result.size(); ++i)
            EXPECT_EQ(result[i].tokens, (std::vector<std::int32_t>{kVllmPrompts[i].back(), 12}));
    }
}

// vLLM 0.32 keeps what arrives in a pause until it goes on; 0.33 refuses it.
TEST(VllmClient, AsksAgainForWhatAPauseRefuses) {
    for (const bool scale_out : {true, false}) {
        FakeVllm server({.scale_out = scale_out, .refused = 7});
        const auto result = ask(server);
        EXPECT_EQ(server.asked, 12);
        for (std::size_t i = 0; i < result.size(); ++i)
            EXPECT_EQ(result[i].tokens, (std::vector<std::int32_t>{kVllmPrompts[i].back(), 12}));
    }
    FakeVllm paused({.refused = 1 << 20});
    EXPECT_THAT(error_of<TransportError>(paused, 3, std::chrono::milliseconds(500)),
                AllOf(HasSubstr(paused.url()), HasSubstr("HTTP 503"), HasSubstr(kPausedText)));
}

TEST(VllmClient, CompletionsAreOfTheVersionThatTheyTell) {
    FakeVllm tells({.scale_out = false, .completions_tell_version = true});
    EXPECT_EQ(ask(tells).at(4).weight_version, 3);
    tells.asked = 0;
    tells.version_after = 4;  // after the last answer
    EXPECT_EQ(error_of(tells), "accepted");
    FakeVllm other({.scale_out = false,
                    .spoil = [](json& choice) { choice["weight_versions"][0]["version"] = "2"; },
                    .completions_tell_version = true});
    EXPECT_THAT(error_of<ProtocolError>(other), HasSubstr("was made by weight version '2', not 3"));
}

TEST(VllmClient, KnowsWhatWasTruncated) {
    FakeVllm server({.spoil = [](json& choice) { choice["finish_reason"] = "length"; }});
    EXPECT_TRUE(ask(server).at(1).truncated);
}

TEST(VllmClient, NamesAServerThatFails) {
    FakeVllm failing({.status = 500});
    EXPECT_THAT(error_of<TransportError>(failing),
                AllOf(HasSubstr(failing.url()), HasSubstr("POST /inference/v1/generate"),
                      HasSubstr("HTTP 500: no room")));
    FakeVllm silent({.status = 0});
    EXPECT_THAT(error_of<DeadlineExceeded>(silent, 3, std::chrono::milliseconds(500)),
                AllOf(HasSubstr(silent.url()), HasSubstr("no answer within engine.deadline_s")));
    FakeVllm guarded({.api_key = "secret"});
    EXPECT_THAT(error_of<TransportError>(guarded),
                AllOf(HasSubstr("HTTP 401"), HasSubstr("set VLLM_API_KEY")));
    ::setenv("VLLM_API_KEY", "wrong", 1);
    EXPECT_THAT(error_of<TransportError>(guarded), HasSubstr("is not this server's"));
    ::setenv("VLLM_API_KEY", "secret", 1);
    EXPECT_EQ(error_of(guarded), "accepted");
    ::unsetenv("VLLM_API_KEY");

    std::string gone;
    { gone = FakeVllm().url(); }
    try {
        make_rollout_client(gone, {.deadline = std::chrono::seconds(60)});
        ADD_FAILURE() << "nobody is there";
    } catch (const TransportError& error) {
        EXPECT_THAT(error.what(), HasSubstr(gone.substr(7)));
    }
}

TEST(VllmClient, RefusesAServerThatWasStartedOtherwise) {
    const auto with = [](const std::string& mode, const std::string& device, bool chunked) {
        return json{{"vllm_config",
                     {{"model_config", {{"logprobs_mode", mode}}},
                      {"device_config", {{"device_type", device}}},
                      {"scheduler_config", {{"enable_chunked_prefill", chunked}}}}}};
    };
    FakeVllm raw({.server_info = with("raw_logprobs", "cuda", true)});
    EXPECT_THAT(error_of(raw), AllOf(HasSubstr(raw.url()), HasSubstr("temperature 0.5"),
                                     HasSubstr("--logprobs-mode processed_logprobs")));
    EXPECT_NO_THROW(make_rollout_client(raw.url(), {.deadline = std::chrono::seconds(60), .temperature = 1}));
    EXPECT_EQ(error_of(FakeVllm({.server_info = with("processed_logprobs", "cuda", true)})), "accepted");
    EXPECT_THAT(error_of(FakeVllm({.server_info = with("processed_logprobs", "cpu", true)})),
                HasSubstr("--no-enable-chunked-prefill"));
    EXPECT_EQ(error_of(FakeVllm({.server_info = with("processed_logprobs", "cpu", false)})), "accepted");
}

}  // namespace
}  // namespace tandem::trainer
