// The rollout client against a server that speaks SGLang's /generate: what it sends, what it accepts, what it
// refuses.
#include <gmock/gmock.h>

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "common/comm/launch.h"
#include "common/error.h"
#include "common/http/server.h"
#include "trainer/rollout/rollouts.h"

namespace tandem::trainer {
namespace {

using nlohmann::json;

// Answers each prompt with its last token, and log-prob -0.1 times the seed.
struct FakeEngine {
    explicit FakeEngine(std::function<void(json&)> spoil = {})
        : server({"127.0.0.1:0", std::size_t{1} << 20, std::chrono::milliseconds(5000)}) {
        server.route(
            "POST", "/generate", [this, spoil](const http::Request& request, http::Responder respond) {
                const json body = json::parse(request.body);
                requests.push_back(body);
                json answers = json::array();
                for (std::size_t i = 0; i < body["input_ids"].size(); ++i) {
                    const auto seed = body["sampling_params"][i]["sampling_seed"].get<std::int64_t>();
                    answers.push_back(
                        {{"output_ids", {body["input_ids"][i].back(), 12}},
                         {"meta_info",
                          {{"output_token_logprobs",
                            {{-0.1f * static_cast<float>(seed), 1, nullptr}, {-0.25, 12, nullptr}}},
                           {"weight_version", "3"}}}});
                }
                if (spoil) spoil(answers);
                respond.send(200, answers);
            });
        server.start();
    }
    http::Server server;
    std::vector<json> requests;
};

std::unique_ptr<RolloutClient> client_of(const std::string& url, std::int64_t batch) {
    return make_rollout_client(url, {.deadline = std::chrono::seconds(60), .batch = batch});
}

const std::vector<std::vector<std::int32_t>> kPrompts = {{1, 2}, {3}, {4, 5, 6}, {7}, {8}};
const std::vector<std::uint64_t> kSeeds = {1, 2, 3, 4, 5};

TEST(RolloutClient, AsksInBatchesAndReadsWhatSglangAnswers) {
    FakeEngine engine;
    const auto world = comm::solo();
    Rollouts rollouts(*world, client_of(engine.server.url(), 2));
    const auto result = rollouts.generate(kPrompts, kSeeds, {1.0, 3, {12}}, 3);
    ASSERT_EQ(result.size(), 5u);
    EXPECT_EQ(engine.requests.size(), 3u);
    const Completion expected{{6, 12}, {-0.1f * 3.0f, -0.25f}, 3};
    EXPECT_EQ(result[2], expected);
    const json params = engine.requests[0]["sampling_params"][0];
    EXPECT_EQ(params["max_new_tokens"], 3);
    EXPECT_EQ(params["temperature"], 1.0);
    EXPECT_EQ(params["stop_token_ids"], json({12}));
    EXPECT_EQ(engine.requests[0]["return_logprob"], true);
    EXPECT_EQ(engine.requests[1]["input_ids"], json({{4, 5, 6}, {7}}));
}

std::string error_with(std::function<void(json&)> spoil, std::int64_t version = 3) {
    FakeEngine engine(std::move(spoil));
    const auto client = client_of(engine.server.url(), 16);
    try {
        client->generate(kPrompts, kSeeds, {1.0, 3, {12}}, version);
    } catch (const ProtocolError& error) {
        return error.what();
    }
    return "accepted";
}

TEST(RolloutClient, RefusesSamplesOfOtherWeights) {
    EXPECT_EQ(error_with({}), "accepted");
    EXPECT_THAT(error_with({}, 4), testing::HasSubstr("answer 0 was made by weight version 3, not 4"));
    EXPECT_THAT(error_with([](json& a) { a[2]["meta_info"]["weight_version"] = 2; }),
                testing::HasSubstr("answer 2 was made by weight version 2, not 3"));
    EXPECT_THAT(error_with([](json& a) { a[1]["meta_info"]["weight_version"] = "loading 3"; }),
                testing::HasSubstr("answer 1 was made by weight version loading 3, not 3"));
    const json spans{{{"version", "2"}, {"start", 0}, {"end", 1}},
                     {{"version", "3"}, {"start", 1}, {"end", 2}}};
    EXPECT_THAT(error_with([&](json& a) { a[3]["meta_info"]["weight_versions"] = spans; }),
                testing::HasSubstr("answer 3 was made by weight version 2, not 3"));
}

TEST(RolloutClient, TakesAStopTokenThatWasCutOffFromTheLogprobs) {
    FakeEngine engine([](json& a) {
        a[0]["output_ids"].erase(1);
        a[0]["meta_info"]["finish_reason"] = {{"type", "stop"}, {"matched", 12}};
    });
    const auto result = client_of(engine.server.url(), 16)->generate(kPrompts, kSeeds, {1.0, 3, {12}}, 3);
    const Completion expected{{2, 12}, {-0.1f, -0.25f}, 3};
    EXPECT_EQ(result[0], expected);
}

TEST(RolloutClient, SendsSglangItsOwnKey) {
    http::Server guarded({.listen = "127.0.0.1:0", .api_key = "secret"});
    guarded.route(
        "GET", "/server_info",
        [](const http::Request&, http::Responder respond) {
            respond.send(200, json{{"enable_deterministic_inference", true}});
        },
        http::Access::user);
    guarded.start();
    const std::string url = "sglang" + guarded.url().substr(4);
    try {
        client_of(url, 16);
        FAIL();
    } catch (const TransportError& error) {
        EXPECT_THAT(error.what(), testing::HasSubstr("set SGLANG_API_KEY"));
    }
    ::setenv("SGLANG_API_KEY", "secret", 1);
    client_of(url, 16);
    ::unsetenv("SGLANG_API_KEY");
}

TEST(RolloutClient, RefusesMalformedAnswers) {
    EXPECT_THAT(error_with([](json& a) { a.erase(0); }), testing::HasSubstr("expected a list of 5 answers"));
    EXPECT_THAT(error_with([](json& a) { a = {{"text", "hello"}}; }), testing::HasSubstr("expected a list"));
    EXPECT_THAT(error_with([](json& a) { a[1].erase("output_ids"); }), testing::HasSubstr("malformed"));
    EXPECT_THAT(error_with([](json& a) { a[1]["output_ids"] = json::array(); }),
                testing::HasSubstr("0 tokens with 2"));
    EXPECT_THAT(error_with([](json& a) { a[1]["meta_info"].erase("weight_version"); }),
                testing::HasSubstr("malformed"));
    EXPECT_THAT(error_with([](json& a) {
                    a[1]["meta_info"]["output_token_logprobs"] = {{nullptr, 1, nullptr}};
                }),
                testing::HasSubstr("malformed"));
}

TEST(RolloutClient, KnowsWhatWasTruncated) {
    const auto truncated = [](std::function<void(json&)> spoil) {
        FakeEngine engine(std::move(spoil));
        const auto client = client_of(engine.server.url(), 16);
        return client->generate(kPrompts, kSeeds, {1.0, 3, {12, 13}}, 3).at(1).truncated;
    };
    EXPECT_FALSE(truncated({}));  // an engine that does not say: it ends with a stop token
    EXPECT_TRUE(truncated([](json& a) { a[1]["output_ids"][1] = 5; }));
    EXPECT_FALSE(truncated([](json& a) { a[1]["meta_info"]["finish_reason"] = {{"type", "stop"}}; }));
    EXPECT_TRUE(truncated([](json& a) { a[1]["meta_info"]["finish_reason"] = {{"type", "length"}}; }));
    EXPECT_THAT(error_with([](json& a) {
                    a[1]["meta_info"]["finish_reason"] = {{"type", "function_call"}};
                }),
                testing::HasSubstr("answer 1 is malformed: it ended with finish_reason function_call"));
}

// As it answers where somebody has ended them, with what they had.
void abort_sample(json& answer) {
    answer["output_ids"] = json::array();
    answer["meta_info"] = {{"finish_reason", {{"type", "abort"}}}, {"weight_version", "3"}};
}

TEST(RolloutClient, AsksAgainForWhatWasAborted) {
    FakeEngine whole;
    const auto expected = client_of(whole.server.url(), 16)->generate(kPrompts, kSeeds, {1.0, 3, {12}}, 3);
    int asked = 0;
    FakeEngine engine([&](json& answers) {
        ++asked;
        if (asked == 1) abort_sample(answers[1]), abort_sample(answers[4]);
        if (asked == 2) abort_sample(answers[1]);
    });
    EXPECT_EQ(client_of(engine.server.url(), 16)->generate(kPrompts, kSeeds, {1.0, 3, {12}}, 3), expected);
    ASSERT_EQ(engine.requests.size(), 3u);
    EXPECT_EQ(engine.requests[1]["input_ids"], json({{3}, {8}}));
    EXPECT_EQ(engine.requests[2]["input_ids"], json({{8}}));
}

TEST(RolloutClient, WhatIsAbortedAgainAndAgainEndsAtTheDeadline) {
    FakeEngine engine([](json& answers) { abort_sample(answers[0]); });
    const auto client =
        make_rollout_client(engine.server.url(), {.deadline = std::chrono::milliseconds(300), .batch = 16});
    try {
        client->generate(kPrompts, kSeeds, {1.0, 3, {12}}, 3);
        FAIL();
    } catch (const DeadlineExceeded& error) {
        EXPECT_THAT(error.what(), testing::HasSubstr(engine.server.url()));
    }
}

TEST(RolloutClient, NamesAnEngineThatIsNotThere) {
    std::string url;
    { url = FakeEngine().server.url(); }
    const auto client = client_of(url, 16);
    try {
        client->generate(kPrompts, kSeeds, {1.0, 3, {12}}, 3);
        FAIL();
    } catch (const TransportError& error) {
        EXPECT_THAT(error.what(), testing::HasSubstr(url.substr(7)));
    }
}

TEST(Rollouts, WordsRoundTrip) {
    const std::vector<Completion> completions = {
        {{1, 2, 3}, {-0.5f, -0.0f, -1e-30f}, 1, true}, {{}, {}, 1LL << 40}, {{7}, {-2.0f}, -1}};
    const auto words = pack_completions(completions);
    EXPECT_EQ(unpack_completions(words), completions);
    for (std::size_t cut = 1; cut < words.size(); ++cut) {
        if (cut == 10 || cut == 14) continue;  // ends of a completion
        EXPECT_THROW(unpack_completions(std::span(words).first(cut)), ProtocolError) << cut;
    }
}

TEST(Rollouts, EveryRankGetsThem) {
    FakeEngine engine;
    const std::string url = engine.server.url();
    std::vector<std::vector<Completion>> results(4);
    comm::run_threads(4, [&](const std::shared_ptr<comm::Communicator>& world) {
        std::unique_ptr<RolloutClient> client;
        if (world->rank() == 0) client = client_of(url, 2);
        Rollouts rollouts(*world, std::move(client));
        results[static_cast<std::size_t>(world->rank())] =
            rollouts.generate(kPrompts, kSeeds, {1.0, 3, {12}}, 3);
    });
    EXPECT_EQ(results[0].size(), 5u);
    for (const auto& result : results) EXPECT_EQ(result, results[0]);
    EXPECT_EQ(engine.requests.size(), 3u);
}

}  // namespace
}  // namespace tandem::trainer
