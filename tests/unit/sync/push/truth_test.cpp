// What a push may say: which servers load what they are given, where their model is not here, and how it is known that
// they have what was pushed.
#include <gmock/gmock.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <thread>

#include "common/error.h"
#include "engine_adapter/questions.h"
#include "sync/push/change.h"
#include "tests/support/error_of.h"
#include "tests/support/soon.h"
#include "tests/unit/sync/push/sglang_fixture.h"

namespace tandem::sync {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;

class Truth : public Push {
  protected:
    // As tandem-sync push: what a server's own files do not say, the pushed ones do.
    ServerOutcome push_directory_to(const std::string& model, const std::string& url, Ask ask = {}) {
        PushOptions options;
        options.model = model;
        options.servers = {url};
        options.ask = std::move(ask);
        const auto connect = [&](const std::string& name, Deadline until) {
            return engine::connect(name, until, {.staging = staging_, .pushed = model});
        };
        return push_directory(options, connect)[0];
    }
    template <class Server>
    void expect_taken(Server& server, const std::string& model) {
        const ServerOutcome outcome = push_directory_to(model, server.url());
        EXPECT_TRUE(outcome.whole) << outcome.error;
        EXPECT_EQ(server.weights(), bytes_of_directory(model));
        EXPECT_THAT(server.violations(), IsEmpty());
    }
    template <class Server>
    void expect_refused(Server& server, const std::string& model,
                        const testing::Matcher<std::string>& words) {
        const auto before = server.weights();
        const ServerOutcome outcome = push_directory_to(model, server.url());
        EXPECT_FALSE(outcome.whole);
        EXPECT_THAT(outcome.error, words);
        EXPECT_EQ(server.weights(), before);
        EXPECT_FALSE(server.paused());
        EXPECT_EQ(server.weight_version(), "default");
        EXPECT_THAT(server.violations(), IsEmpty());
    }
};

TEST_F(Truth, LoadersOfDirectoriesAndOfNoneLoadOne) {
    const std::string next = model("next", 2);
    for (const char* format : {"auto", "dummy", "runai_streamer", "pt", "npcache"}) {
        SCOPED_TRACE(format);
        VllmStandIn vllm({.model = model("a", 1), .load_format = format});
        expect_taken(vllm, next);
        SglangStandIn sglang({.model = model("b", 1), .load_format = format});
        expect_taken(sglang, next);
    }
}

TEST_F(Truth, LoadersThatMayIgnoreADirectoryAreRefusedByName) {
    const std::string next = model("next", 2);
    for (const char* format : {"sharded_state", "runai_streamer_sharded", "tensorizer", "ipc_cache",
                               "modelexpress", "mistral", "a_loader_of_theirs"}) {
        VllmStandIn vllm({.model = model("a", 1), .load_format = format});
        expect_refused(vllm, next,
                       AllOf(HasSubstr(std::string("--load-format ") + format), HasSubstr("plug-in")));
        SglangStandIn sglang({.model = model("b", 1), .load_format = format});
        expect_refused(sglang, next, HasSubstr(std::string("--load-format ") + format));
    }
}

// Its files are in a bucket; config.json and tokenizer lie in a folder of its own.
TEST_F(Truth, AServerOfAnObjectStoreTakesWhatIsPushed) {
    const std::string next = model("next", 2), folder = folder_ / "cache";
    fs::create_directory(folder);
    fs::copy(next + "/config.json", folder + "/config.json");
    for (const char* url : {"s3://models/current", "gs://models/current", "az://a/b"}) {
        SCOPED_TRACE(url);
        VllmStandIn vllm(
            {.model = model("a", 1), .load_format = "runai_streamer", .root = url, .folder = folder});
        expect_taken(vllm, next);
        expect_taken(vllm, model("newer", 3));
        VllmStandIn says_no_folder({.model = model("b", 1), .root = url});
        expect_taken(says_no_folder, next);
        for (const char* version : {"0.5.15.post1", "0.5.23"}) {
            SglangStandIn sglang(
                {.model = model("c", 1), .load_format = "remote", .started_with = url, .version = version});
            expect_taken(sglang, next);
            expect_taken(sglang, model("newer", 3));
        }
    }
}

TEST_F(Truth, WhatIsNowhereHereIsRefusedWithTheReason) {
    const std::string next = model("next", 2);
    VllmStandIn elsewhere({.model = model("a", 1), .root = "/of/another/host"});
    expect_refused(elsewhere, next,
                   AllOf(HasSubstr("'/of/another/host'"), HasSubstr("see the same file system")));
    VllmStandIn container({.model = model("b", 1), .root = "s3://m/x", .folder = "/cache/of/a/container"});
    expect_refused(container, next,
                   AllOf(HasSubstr("its own folder is not here"), HasSubstr("/cache/of/a/container")));
    VllmStandIn quantized({.model = model("c", 1), .root = "s3://m/x", .quantization = "fp8"});
    expect_refused(quantized, next,
                   AllOf(HasSubstr("quantised (fp8)"), HasSubstr("files that say how are not here")));
    SglangStandIn other({.model = model("d", 1), .started_with = "s3://m/x", .quantization = "awq"});
    expect_refused(other, next, HasSubstr("quantised (awq)"));
    // A trainer has no directory.
    VllmStandIn of_bucket({.model = model("e", 1), .root = "s3://m/x"});
    EXPECT_THAT(push(next, {of_bucket.url()})[0].error,
                AllOf(HasSubstr("which tensors it wants is not known here"), HasSubstr("tandem-sync push")));
}

// As `vllm serve ORG/NAME` on this host: its files are in the cache that both use.
TEST_F(Truth, AModelOfTheHubIsFoundInTheCache) {
    const fs::path repository = folder_ / "hub" / "models--org--some.model";
    fs::create_directories(repository / "refs");
    fs::create_directories(repository / "snapshots");
    fs::rename(model("snapshot", 1), repository / "snapshots" / "0123abcd");
    std::ofstream(repository / "refs" / "main") << "0123abcd";
    ::setenv("HF_HUB_CACHE", (folder_ / "hub").c_str(), 1);
    const std::string next = model("next", 2);
    VllmStandIn vllm({.model = model("a", 1), .root = "org/some.model", .folder = "org/some.model"});
    EXPECT_TRUE(push(next, {vllm.url()})[0].whole);
    EXPECT_EQ(vllm.weights(), bytes_of_directory(next));
    for (const char* name : {"org/another", "org", "../org/some.model", "a/b/c"}) {
        VllmStandIn unknown({.model = model("b", 1), .root = name});
        expect_refused(unknown, next, HasSubstr("HF_HUB_CACHE"));
    }
    ::unsetenv("HF_HUB_CACHE");
}

// Answers with a log-prob that its weights decide, and which another cause moves by `noise` at each question.
VllmStandIn::Options answering(const std::string& model, double noise = 0) {
    VllmStandIn::Options options{.model = model};
    const auto times = std::make_shared<int>(0);
    options.generates = [=](const std::map<std::string, std::string>& weights,
                            const std::vector<std::int32_t>&, std::int64_t length) {
        const std::string& bytes = weights.at("model.embed_tokens.weight");
        double sum = noise * (*times)++;
        for (const char c : bytes) sum += static_cast<unsigned char>(c);
        return std::pair{std::vector<std::int32_t>(static_cast<std::size_t>(length), 7),
                         std::vector<double>(static_cast<std::size_t>(length), -sum * 1e-6)};
    };
    return options;
}

Ask ask_for(const engine::ConnectOptions& connect = {}) {
    return [connect](const std::string& url, const Prompts& prompts, Deadline deadline) {
        std::vector<Said> said;
        for (auto& [tokens, log_probs] :
             engine::ask_continuations(url, prompts, kProbeTokens, deadline, connect))
            said.push_back({tokens, log_probs});
        return said;
    };
}

TEST_F(Truth, AChangedAnswerIsEvidenceAndTheSameOneIsNone) {
    const std::string next = model("next", 2);
    VllmStandIn server(answering(model("a", 1)));
    EXPECT_EQ(push_directory_to(next, server.url(), ask_for()).known, Known::by_probe);
    const ServerOutcome again = push_directory_to(next, server.url(), ask_for());
    EXPECT_TRUE(again.whole) << again.error;
    EXPECT_EQ(again.known, Known::not_proven) << "the same weights";
    EXPECT_EQ(push_directory_to(model("b", 3), server.url()).known, Known::not_proven) << "nobody asked";

    VllmStandIn silent({.model = model("c", 1)});  // it generates nothing
    EXPECT_EQ(push_directory_to(next, silent.url(), ask_for()).known, Known::not_proven);
    VllmStandIn::Options lies = answering(model("d", 1));
    lies.keeps_weights = true;
    VllmStandIn liar(lies);
    const ServerOutcome said = push_directory_to(next, liar.url(), ask_for());
    EXPECT_TRUE(said.whole) << said.error;
    EXPECT_EQ(said.known, Known::not_proven);
    PushOptions options;
    EXPECT_THAT(push_table(options, {said}), HasSubstr("not proven   updated"));
    EXPECT_EQ(push_json(options, {said})["servers"][0]["known"], "not proven");
}

// vLLM 0.32 answers when the pause ends; 0.33 refuses until then.
TEST_F(Truth, AQuestionWaitsForTheEndOfAPause) {
    VllmStandIn::Options options = answering(model("a", 1));
    options.refuses_paused = true;
    VllmStandIn server(options);
    const Ask ask = ask_for();
    const auto said = ask(server.url(), {{1, 2, 3}}, test::soon());
    server.set_paused(true);
    {
        const std::jthread other_pusher([&] {
            std::this_thread::sleep_for(std::chrono::milliseconds(100));
            server.set_paused(false);
        });
        EXPECT_EQ(ask(server.url(), {{1, 2, 3}}, test::soon()).at(0).log_probs, said.at(0).log_probs);
    }
    server.set_paused(true);
    EXPECT_THAT(test::error_of([&] {
                    ask(server.url(), {{1, 2, 3}}, Deadline::after(std::chrono::milliseconds(300)));
                }),
                AllOf(HasSubstr("/v1/completions"), HasSubstr("HTTP 503: Generation is paused")));
    EXPECT_EQ(push_directory_to(model("next", 2), server.url(), ask).known, Known::not_proven);
    EXPECT_TRUE(server.paused()) << "it was somebody else's pause";
}

// A server that answers a little otherwise each time has not shown that its weights are others.
TEST_F(Truth, WhatVariesAnywayIsNoEvidence) {
    VllmStandIn::Options options = answering(model("a", 1), 1000);
    options.keeps_weights = true;
    VllmStandIn server(options);
    EXPECT_EQ(push_directory_to(model("next", 2), server.url(), ask_for()).known, Known::not_proven);
}

// They go on, and what was computed of them is computed anew.
TEST_F(Truth, KeptRequestsStandStillMeanwhile) {
    in_flight_ = engine::InFlight::keep;
    const std::string next = model("next", 2);
    VllmStandIn vllm({.model = model("a", 1)});
    SglangStandIn sglang({.model = model("b", 1)});
    sglang.set_running(3);
    for (const ServerOutcome& outcome : push(next, {vllm.url(), sglang.url()}))
        EXPECT_TRUE(outcome.whole) << outcome.error;
    EXPECT_EQ(vllm.pause_modes(), std::vector<std::string>{"keep"});
    EXPECT_EQ(sglang.running(), 3);
    EXPECT_FALSE(sglang.paused());
    EXPECT_EQ(vllm.weights(), bytes_of_directory(next));
    EXPECT_EQ(sglang.weights(), bytes_of_directory(next));
    EXPECT_THAT(vllm.violations(), IsEmpty());
    EXPECT_THAT(sglang.violations(), IsEmpty());

    SglangStandIn older({.model = model("c", 1), .version = "0.5.15.post1"});
    EXPECT_THAT(push(next, {older.url()})[0].error, HasSubstr("0.5.15.post1 cannot keep its requests"));
    EXPECT_THAT(push(next, {"tandem://127.0.0.1:9"})[0].error,
                HasSubstr("a tandem-engine keeps no requests"));
}

TEST(Change, IsFartherThanAnswersOfOneServerAreFromEachOther) {
    const auto said = [](double value, std::int32_t token = 1) { return Said{{token}, {value}}; };
    EXPECT_TRUE(differ({said(-1), said(-1)}, {said(-1.001), said(-1.001)}));
    EXPECT_FALSE(differ({said(-1), said(-1)}, {said(-1), said(-1)}));
    EXPECT_FALSE(differ({said(-1), said(-1.1)}, {said(-1.1), said(-1.2)}));
    EXPECT_TRUE(differ({said(-1), said(-1.1)}, {said(-2), said(-2.1)}));
    EXPECT_TRUE(differ({said(-1), said(-1)}, {said(-1, 2), said(-1, 2)})) << "another token";
    EXPECT_FALSE(differ({said(-1), said(-1, 2)}, {said(-1, 3), said(-1, 3)}));
    EXPECT_FALSE(differ({}, {said(-1), said(-1)}));
    EXPECT_FALSE(differ({said(-1), said(-1)}, {}));
    EXPECT_FALSE(differ({said(NAN), said(NAN)}, {said(-1), said(-1)}));
}

}  // namespace
}  // namespace tandem::sync
