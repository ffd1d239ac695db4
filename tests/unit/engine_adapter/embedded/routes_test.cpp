// Every route over real HTTP: SGLang's answers to good requests, a clear status and message to bad ones.
#include "engine_adapter/embedded/routes.h"

#include <gmock/gmock.h>

#include <atomic>
#include <future>
#include <list>
#include <nlohmann/json.hpp>
#include <thread>

#include "common/error.h"
#include "common/http/client.h"
#include "common/ops/batched_copy.h"
#include "tests/support/soon.h"
#include "tests/unit/common/store/raw_client.h"
#include "tests/unit/engine_adapter/embedded/tiny_model.h"

namespace tandem::engine {
namespace {

using test::soon;

using nlohmann::json;
using testing::HasSubstr;

class Routes : public testing::Test {
  protected:
    Routes() : engine(tiny_config(), options()), server({.listen = "127.0.0.1:0", .max_body_bytes = 10'000}) {
        fill_weights(engine.weights(), 1);
        engine.start();
        add_routes(server, engine, {"the/model", "unix-abstract:x", nullptr, &background});
        server.start();
        client = std::make_unique<http::Client>(server.url());
    }
    ~Routes() override {
        engine.stop();
        server.stop();
    }
    static EmbeddedOptions options() {
        EmbeddedOptions result;
        result.kv_tokens = 512;
        return result;
    }
    json post(const std::string& path, const json& body) { return client->post_json(path, body, soon()); }
    http::Response raw(const std::string& method, const std::string& path, const std::string& body = "") {
        return client->request(method, path, body, soon());
    }
    void make_whole(std::int64_t version) {
        post("/pause_generation", json::object());
        engine.begin_update(version);
        fill_weights(engine.weights(), 1);
        engine.commit_update(version);
        post("/continue_generation", json::object());
    }

    Background background{4};
    EmbeddedEngine engine;
    http::Server server;
    std::unique_ptr<http::Client> client;
};

TEST_F(Routes, GenerateAnswersWithTokensLogprobsAndVersion) {
    make_whole(6);
    const json answer =
        post("/generate", {{"input_ids", {1, 2, 3}},
                           {"sampling_params", {{"max_new_tokens", 5}, {"temperature", 0.8}, {"seed", 4}}},
                           {"return_logprob", true}});
    const auto tokens = answer["output_ids"].get<std::vector<std::int32_t>>();
    ASSERT_EQ(tokens.size(), 5u);
    const json& meta = answer["meta_info"];
    EXPECT_EQ(meta["weight_version"], "6");
    EXPECT_EQ(meta["prompt_tokens"], 3);
    EXPECT_EQ(meta["finish_reason"]["type"], "length");
    std::vector<std::int32_t> all = {1, 2, 3};
    all.insert(all.end(), tokens.begin(), tokens.end());
    const auto expected = naive_logprobs(tiny_config(), engine.weights(), all, 0.8);
    for (std::size_t i = 0; i < tokens.size(); ++i) {
        const json& entry = meta["output_token_logprobs"][i];
        EXPECT_NEAR(entry[0].get<double>(), expected[2 + i][static_cast<std::size_t>(tokens[i])], 2e-5);
        EXPECT_EQ(entry[1], tokens[i]);
    }
    const json list = post(
        "/generate", {{"input_ids", {{1}, {2}}}, {"sampling_params", {{"max_new_tokens", 2}, {"n", 3}}}});
    ASSERT_EQ(list.size(), 6u);
    EXPECT_FALSE(list[0]["meta_info"].contains("output_token_logprobs"));
}

TEST_F(Routes, ALargeAnswerWaitsForTheBackgroundAndTheEngineGoesOn) {
    make_whole(1);
    std::promise<void> go;
    background.add([&] { go.get_future().wait(); });
    std::future<json> large = std::async(std::launch::async, [this] {
        http::Client own(server.url());
        return own.post_json("/generate",
                             {{"input_ids", {1}}, {"sampling_params", {{"max_new_tokens", 2}, {"n", 100}}}},
                             soon());
    });
    EXPECT_EQ(post("/generate", {{"input_ids", {1}}})["output_ids"].size(), 95u);
    EXPECT_EQ(large.wait_for(std::chrono::milliseconds(50)), std::future_status::timeout);
    go.set_value();
    EXPECT_EQ(large.get().size(), 100u);
}

TEST_F(Routes, BadGenerateRequestsAre400AndTheServerLivesOn) {
    make_whole(1);
    for (const char* body :
         {"{", "[]", "{}", R"({"input_ids": []})", R"({"input_ids": [99]})", R"({"text": "x"})",
          R"({"input_ids": [1], "stream": true})", R"({"input_ids": [1], "sampling_params": {"n": 0}})",
          R"({"input_ids": [1], "sampling_params": {"top_p": 2}})"}) {
        const http::Response response = raw("POST", "/generate", body);
        EXPECT_EQ(response.status, 400) << body;
        const json error = json::parse(response.body);
        EXPECT_FALSE(error["error"]["message"].get<std::string>().empty());
        EXPECT_EQ(error["error"]["code"], "invalid");
    }
    const std::string long_prompt = json{{"input_ids", std::vector<int>(200, 1)}}.dump();
    EXPECT_THAT(raw("POST", "/generate", long_prompt).body,
                HasSubstr("the prompt has 200 tokens, the model's context holds 96"));
    EXPECT_EQ(raw("POST", "/generate", std::string(20'000, ' ')).status, 413);
    EXPECT_EQ(raw("POST", "/generate", R"({"input_ids": [1]})").status, 200);
}

TEST_F(Routes, EveryRouteRefusesBadInput) {
    for (const char* path :
         {"/generate", "/pause_generation", "/continue_generation", "/abort_request", "/weights_checker"}) {
        for (const char* body : {"{", "[]", "\xff", "[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[["}) {
            EXPECT_EQ(raw("POST", path, body).status, 400) << path << " " << body;
        }
        EXPECT_EQ(raw("POST", path, std::string(20'000, ' ')).status, 413) << path;
        EXPECT_EQ(raw("DELETE", path).status, 405) << path;
    }
    for (const char* path : {"/model_info", "/server_info", "/health"}) {
        EXPECT_EQ(raw("DELETE", path).status, 405) << path;
        EXPECT_EQ(raw("POST", path, std::string(20'000, ' ')).status, 413) << path;
        EXPECT_EQ(raw("GET", path, "{").status, 400) << path;
    }
    for (const char* path : {"/flush_cache", "/release_memory_occupation", "/resume_memory_occupation",
                             "/pause_generation", "/continue_generation", "/abort_request", "/generate"}) {
        EXPECT_EQ(raw("POST", path, std::string(20'000, ' ')).status, 413) << path;
        EXPECT_EQ(raw("POST", path, "{").status, 400) << path;
        EXPECT_THAT(raw("POST", path, R"({"input_ids": [1], "modes": "retract"})").body,
                    HasSubstr("is not supported by this engine"))
            << path;
    }
    for (const char* path : {"/pause_generation", "/continue_generation", "/abort_request", "/generate"})
        EXPECT_EQ(raw("GET", path).status, 405) << path << ": a link must not change anything";
    for (const char* path : {"/release_memory_occupation", "/resume_memory_occupation"})
        EXPECT_EQ(raw("GET", path).status, 400) << path << ": a link must not change anything";
    for (const char* path : {"/health_generate", "/get_model_info", "/get_server_info"})
        EXPECT_EQ(raw("GET", path, "{").status, 400) << path;
    EXPECT_EQ(raw("POST", "/flush_cache", "{").status, 400);
    EXPECT_EQ(raw("POST", "/pause_generation", R"({"mode": "never"})").status, 400);
    EXPECT_EQ(raw("POST", "/pause_generation", R"({"mode": 3})").status, 400);
    EXPECT_EQ(raw("POST", "/abort_request", "{}").status, 400);
    for (const char* rid : {"null", "\"\"", "1", "[]", "[\"a\"]"}) {
        const std::string body = std::string(R"({"rid": )") + rid;
        EXPECT_EQ(raw("POST", "/abort_request", body + "}").status, 400) << rid;
        EXPECT_EQ(raw("POST", "/abort_request", body + R"(, "abort_all": false})").status, 400) << rid;
    }
    EXPECT_EQ(raw("POST", "/abort_request", R"({"rid": "", "abort_all": true})").status, 200);
    for (const char* timeout : {"-1", "x", "", "1e9", "nan"})
        EXPECT_EQ(raw("GET", std::string("/flush_cache?timeout=") + timeout).status, 400) << timeout;
    EXPECT_EQ(raw("POST", "/abort_request", R"({"abort_all": 1})").status, 400);
    EXPECT_EQ(raw("POST", "/weights_checker", R"({"action": "compare"})").status, 400);
    EXPECT_EQ(raw("GET", "/nowhere").status, 404);
}

TEST_F(Routes, MethodsOfSglang) {
    make_whole(1);
    for (const char* path :
         {"/flush_cache", "/release_memory_occupation", "/resume_memory_occupation", "/weights_checker"}) {
        for (const char* method : {"GET", "POST"}) {
            const std::string body =
                std::string(path).ends_with("occupation") ? R"({"tags": ["kv_cache"]})" : "";
            EXPECT_EQ(raw(method, path, body).status, 200) << method << " " << path;
        }
    }
    for (const char* method : {"POST", "PUT"})
        EXPECT_EQ(raw(method, "/generate", R"({"input_ids": [1]})").status, 200) << method;
    EXPECT_EQ(raw("POST", "/flush_cache?timeout=0.5").status, 200);
}

TEST_F(Routes, WithoutAWholeVersionThereIs503WithTheReason) {
    for (const char* path : {"/health", "/health_generate"}) {
        const http::Response response = raw("GET", path);
        EXPECT_EQ(response.status, 503);
        EXPECT_THAT(response.body, HasSubstr("no weights have been loaded"));
    }
    EXPECT_EQ(raw("POST", "/generate", R"({"input_ids": [1]})").status, 503);
    EXPECT_EQ(client->get_json("/model_info", soon())["weight_version"], "0");
    make_whole(2);
    EXPECT_EQ(raw("GET", "/health").status, 200);
    EXPECT_EQ(raw("GET", "/health_generate").status, 200);
    EXPECT_EQ(raw("POST", "/generate", R"({"input_ids": [1]})").status, 200);
    post("/pause_generation", {{"mode", "retract"}});
    engine.begin_update(3);
    EXPECT_EQ(raw("GET", "/health").status, 503);
    EXPECT_EQ(raw("GET", "/weights_checker").status, 503);
    engine.abort_update("bucket 7 was corrupt", true);
    EXPECT_THAT(raw("GET", "/health").body, HasSubstr("bucket 7 was corrupt"));
    EXPECT_THAT(raw("POST", "/generate", R"({"input_ids": [1]})").body, HasSubstr("bucket 7 was corrupt"));
}

TEST_F(Routes, ModelInfoServerInfoAndChecksums) {
    make_whole(4);
    const json info = client->get_json("/model_info", soon());
    EXPECT_EQ(info["model_path"], "the/model");
    EXPECT_EQ(info["weight_version"], "4");
    EXPECT_EQ(info["tandem"]["receiver"], "unix-abstract:x");
    EXPECT_EQ(info["tandem"]["weights"], "whole");
    EXPECT_EQ(client->get_json("/get_model_info", soon()), info);
    const json counters = client->get_json("/server_info", soon());
    EXPECT_EQ(counters["disable_cuda_graph"], false);
    EXPECT_EQ(counters["cuda_graph_steps"], 0);  // on the CPU
    EXPECT_EQ(counters["pages_free"], counters["pages_total"]);
    EXPECT_EQ(counters["max_total_num_tokens"], 512);
    const json checked = post("/weights_checker", {{"action", "checksum"}});
    EXPECT_TRUE(checked["success"].get<bool>());
    const json& sums = checked["ranks"][0]["checksums"];
    ASSERT_EQ(sums.size(), engine.weights().size());
    for (const WeightSlot& slot : engine.weights()) {
        EXPECT_EQ(sums[slot.info.name], ops::to_hex(ops::checksum(slot.memory)));
    }
}

TEST_F(Routes, FlushAbortAndPauseWhileSomethingWaits) {
    make_whole(1);
    EXPECT_EQ(raw("POST", "/flush_cache").status, 200);
    post("/pause_generation", {{"mode", "in_place"}});
    http::Response answer;
    std::thread waiting([&] {
        http::Client other(server.url());
        answer = other.request("POST", "/generate", R"({"input_ids": [1], "rid": "mine"})", soon());
    });
    while (client->get_json("/server_info", soon())["waiting"] != 1) std::this_thread::yield();
    EXPECT_EQ(raw("POST", "/flush_cache").status, 400);
    EXPECT_EQ(raw("GET", "/flush_cache?timeout=0.05").status, 400);
    EXPECT_EQ(raw("POST", "/abort_request", R"({"rid": "other"})").status, 200);
    EXPECT_EQ(raw("POST", "/abort_request", R"({"rid": "mine"})").status, 200);
    waiting.join();
    EXPECT_EQ(answer.status, 200);
    EXPECT_EQ(json::parse(answer.body)["meta_info"]["finish_reason"]["type"], "abort");
    EXPECT_EQ(raw("GET", "/health_generate").status, 503) << "paused";
    post("/continue_generation", json::object());
    EXPECT_EQ(raw("POST", "/flush_cache").status, 200);
}

TEST_F(Routes, ThoseWhoWaitForChecksumsGetTheSameAnswer) {
    make_whole(1);
    std::atomic<bool> go{false};
    engine.between_steps([&] {
        while (!go) std::this_thread::yield();
    });
    std::vector<std::string> answers(8);
    std::vector<std::thread> asking;
    for (std::string& answer : answers) {
        asking.emplace_back([&] {
            http::Client other(server.url());
            answer = other.request("GET", "/weights_checker", "", soon()).body;
        });
    }
    go = true;
    for (std::thread& thread : asking) thread.join();
    for (const std::string& answer : answers) EXPECT_EQ(answer, answers.front());
    EXPECT_THAT(answers.front(), HasSubstr("checksums"));
}

// A connection on which requests are sent without waiting for their answers.
class Asker : public RawClient {
  public:
    using RawClient::RawClient;
    void ask(const std::string& path) { send("GET " + path + " HTTP/1.1\r\nHost: localhost\r\n\r\n"); }
    std::string status() {  // of an answer without a body
        std::string head;
        while (!head.ends_with("\r\n\r\n")) {
            const std::string byte = receive(1);
            if (byte.empty()) break;
            head += byte;
        }
        return head.substr(0, head.find('\r'));
    }
};

// Of an engine that takes one request at a time.
TEST(HealthGenerate, ThoseWhoWaitGetTheAnswerOfOneProbe) {
    EmbeddedOptions options;
    options.kv_tokens = 512;
    options.max_queued_samples = 1;
    EmbeddedEngine engine(tiny_config(), options);
    engine.start();
    engine.pause(Deadline::after_ms(20'000));
    engine.begin_update(1);
    fill_weights(engine.weights(), 1);
    engine.commit_update(1);
    engine.resume();
    http::Server server({.listen = "127.0.0.1:0"});
    add_routes(server, engine, {});
    server.start();

    std::promise<void> stands, go;
    engine.between_steps([&] {
        stands.set_value();
        go.get_future().wait();
    });
    stands.get_future().wait();
    std::list<Asker> askers;
    for (int i = 0; i < 32; ++i) {
        askers.emplace_back(server.port()).ask("/health");
        EXPECT_EQ(askers.back().status(), "HTTP/1.1 200 OK");
    }
    for (Asker& asker : askers) asker.ask("/health_generate");
    Asker last(server.port());
    for (int i = 0; i < 3; ++i) {  // behind them all: the server reads in the order of arrival
        last.ask("/health");
        EXPECT_EQ(last.status(), "HTTP/1.1 200 OK");
    }
    go.set_value();
    for (Asker& asker : askers) EXPECT_EQ(asker.status(), "HTTP/1.1 200 OK");
    last.ask("/health_generate");
    EXPECT_EQ(last.status(), "HTTP/1.1 200 OK");
    engine.stop();
    server.stop();
}

TEST_F(Routes, AModelWhoseNameIsNoUtf8IsToldOf) {
    http::Server strange({.listen = "127.0.0.1:0"});
    add_routes(strange, engine, {"/models/\xff", "", nullptr, nullptr});
    strange.start();
    http::Client other(strange.url());
    for (const char* path : {"/model_info", "/server_info"})
        EXPECT_EQ(other.get_json(path, soon())["model_path"], "/models/\xef\xbf\xbd") << path;
    strange.stop();
}

TEST_F(Routes, AUsersKeyEndsNoRequestsOfOthers) {
    http::Server guarded({.listen = "127.0.0.1:0", .api_key = "user", .admin_api_key = "admin"});
    add_routes(guarded, engine, RouteInfo());
    guarded.start();
    http::Client user(guarded.url(), "user"), administrator(guarded.url(), "admin");
    const http::Response all = user.request("POST", "/abort_request", R"({"abort_all": true})", soon());
    EXPECT_EQ(all.status, 403);
    EXPECT_THAT(all.body, HasSubstr("admin API key"));
    EXPECT_EQ(administrator.request("POST", "/abort_request", R"({"abort_all": true})", soon()).status, 200);
    EXPECT_EQ(user.request("POST", "/abort_request", R"({"rid": "mine"})", soon()).status, 200);
    EXPECT_EQ(user.request("POST", "/pause_generation", "{}", soon()).status, 401);
    EXPECT_EQ(administrator.request("POST", "/pause_generation", "{}", soon()).status, 200);
    EXPECT_EQ(administrator.request("POST", "/continue_generation", "{}", soon()).status, 200);
    guarded.stop();
}

TEST_F(Routes, AClientThatLeavesStopsItsRequest) {
    make_whole(1);
    post("/pause_generation", {{"mode", "in_place"}});
    {
        http::Client other(server.url());
        EXPECT_THROW(other.request("POST", "/generate", R"({"input_ids": [1]})", Deadline::after_ms(100)),
                     DeadlineExceeded);
    }
    for (int i = 0; i < 200; ++i) {
        const json info = client->get_json("/server_info", soon());
        if (info["waiting"] == 0 && info["running"] == 0 && i > 0) return;
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    FAIL() << "the request of a client that left is still there";
}

}  // namespace
}  // namespace tandem::engine
