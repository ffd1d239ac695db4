// What each kind of server that is not as it should be costs: itself, by name, and nobody else.
#include <gmock/gmock.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <memory>
#include <thread>

#include "common/comm/launch.h"
#include "common/http/error_text.h"
#include "common/http/server.h"
#include "sync/push/directory_source.h"
#include "tests/support/error_of.h"
#include "tests/support/eventually.h"
#include "tests/unit/sync/push/push_fixture.h"

namespace tandem::sync {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;

class Broken : public Push {};

TEST_F(Broken, Unreachable) {
    expect_named("vllm://127.0.0.1:9",
                 AllOf(HasSubstr("127.0.0.1:9"), HasSubstr("Connection refused"), HasSubstr("is it up")));
}

TEST_F(Broken, AcceptsAndNeverAnswers) {
    VllmStandIn server({.model = model("a", 1), .fails = {{"/version", 0}}});
    expect_left_alone(server,
                      AllOf(HasSubstr("GET /version"), HasSubstr("no answer before the deadline"),
                            HasSubstr("a longer one")),
                      "", std::chrono::milliseconds(500));
}

// Not even by HTTP.
TEST_F(Broken, ListensAndNeverAccepts) {
    const int listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    ASSERT_EQ(::bind(listener, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
    ASSERT_EQ(::listen(listener, 4), 0);
    socklen_t size = sizeof(address);
    ASSERT_EQ(::getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size), 0);
    expect_named("vllm://127.0.0.1:" + std::to_string(ntohs(address.sin_port)),
                 AllOf(HasSubstr("GET /version"), HasSubstr("no answer before the deadline")), "",
                 std::chrono::milliseconds(500));
    ::close(listener);
}

// One answer to whatever is asked, by no library that would refuse to make it.
class AnswersAlways {
  public:
    explicit AnswersAlways(const std::string& head, const std::string& body)
        : answer_(head + "\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: " +
                  std::to_string(body.size()) + "\r\n\r\n" + body),
          listener_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
        sockaddr_in address{};
        address.sin_family = AF_INET;
        address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        socklen_t size = sizeof(address);
        ::bind(listener_, reinterpret_cast<const sockaddr*>(&address), size);
        ::listen(listener_, 16);
        ::getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size);
        url_ = "vllm://127.0.0.1:" + std::to_string(ntohs(address.sin_port));
        thread_ = std::thread([this] { run(); });
    }
    ~AnswersAlways() {
        ::shutdown(listener_, SHUT_RDWR);
        thread_.join();
        ::close(listener_);
    }
    const std::string& url() const { return url_; }

  private:
    void run() const {
        for (int fd; (fd = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC)) >= 0; ::close(fd)) {
            char request[4096];
            if (::recv(fd, request, sizeof(request), 0) <= 0) continue;
            for (std::size_t sent = 0; sent < answer_.size();) {
                const ssize_t n = ::send(fd, answer_.data() + sent, answer_.size() - sent, MSG_NOSIGNAL);
                if (n <= 0) break;
                sent += static_cast<std::size_t>(n);
            }
        }
    }
    std::string answer_, url_;
    int listener_;
    std::thread thread_;
};

// Printing and copying are recursive: the whole push used to end by a signal, its other servers paused.
TEST_F(Broken, AnswersDeeperAndWiderThanAStackOrMemoryStands) {
    const std::string deep = R"({"detail":)" + std::string(200'000, '[') + std::string(200'000, ']') + "}";
    const std::string wide = R"({"version":[)" + std::string(4'000'000, ',') + "]}";
    for (const std::string& body : {deep, wide}) {
        for (const char* head :
             {"HTTP/1.1 500 Internal Server Error", "HTTP/1.1 200 OK", "HTTP/1.1 404 Not Found"}) {
            const AnswersAlways server(head, body);
            expect_named(server.url(), HasSubstr(server.url().substr(7)));
        }
    }
}

TEST_F(Broken, WhatItSaysMovesNoCursorAndForgesNoRow) {
    const AnswersAlways server("HTTP/1.1 500 Internal Server Error",
                               R"({"error": "\u001b]0;x\u0007\nvllm://prod:8000  vllm  updated"})");
    const auto outcomes = push(model("next", 9), {server.url()});
    const std::string table = push_table({}, outcomes);
    EXPECT_THAT(table, testing::Not(HasSubstr("\x1b")));
    EXPECT_THAT(table, testing::Not(HasSubstr("\nvllm://prod")));
}

// Every reply is late, none by more than the deadline: it gets its weights last.
TEST_F(Broken, ASlowServerHoldsNobodyUp) {
    VllmStandIn slow({.model = model("a", 1), .delay = std::chrono::milliseconds(300)});
    VllmStandIn quick({.model = model("b", 2)});
    const std::string next = model("next", 9);
    std::vector<ServerOutcome> outcomes;
    {
        const std::jthread pusher([&] { outcomes = push(next, {slow.url(), quick.url()}); });
        ASSERT_TRUE(test::eventually([&] { return quick.weights() == bytes_of_directory(next); }));
        EXPECT_NE(slow.weights(), bytes_of_directory(next));
    }
    for (const ServerOutcome& outcome : outcomes) EXPECT_TRUE(outcome.whole) << outcome.error;
    EXPECT_EQ(slow.weights(), bytes_of_directory(next));
}

TEST_F(Broken, ThatRestartsBetweenTwoPushesIsNamedAndThenServed) {
    auto server = std::make_unique<VllmStandIn>(VllmStandIn::Options{.model = model("a", 1)});
    const auto world = comm::solo();
    const std::string next = model("b", 2);
    const DirectorySource source(next, world);
    Session session(world, source,
                    engine::connect(server->url(), Deadline::after_ms(20'000), {.staging = staging()}));
    session.push(1);
    const std::string url = server->url();
    const std::string address = server->address();
    server.reset();
    EXPECT_THAT(test::error_of([&] { session.push(2); }),
                AllOf(HasSubstr(url), HasSubstr("pause"), HasSubstr("is it up")));
    EXPECT_THAT(staged(), IsEmpty());
    VllmStandIn again({.model = model("a", 1), .listen = address});
    session.push(3);
    EXPECT_EQ(again.weights(), bytes_of_directory(next));
    EXPECT_EQ(again.weight_version(), "3");
    EXPECT_FALSE(again.paused());
    EXPECT_THAT(again.violations(), IsEmpty());
}

TEST_F(Broken, SlowerThanTheDeadlineButNotThanALongerOne) {
    VllmStandIn server({.model = model("a", 1), .delay = std::chrono::milliseconds(200)});
    expect_left_alone(server, HasSubstr("deadline"), "", std::chrono::milliseconds(300));
    const std::string next = model("b", 2);
    EXPECT_TRUE(push(next, {server.url()})[0].whole);
    EXPECT_EQ(server.weights(), bytes_of_directory(next));
}

TEST_F(Broken, WrongKey) {
    VllmStandIn server({.model = model("a", 1), .api_key = "another"});
    expect_left_alone(
        server, AllOf(HasSubstr("HTTP 401"), HasSubstr("VLLM_API_KEY"), Not(HasSubstr("right"))), "right");
}

TEST_F(Broken, AKeyThatAProxyAsksForIsNamed) {
    VllmStandIn server({.model = model("a", 1), .fails = {{"/version", 401}}});
    expect_left_alone(server,
                      AllOf(HasSubstr("GET /version"), HasSubstr("HTTP 401"), HasSubstr("VLLM_API_KEY")));
}

TEST_F(Broken, WhatAServerSaysHasNoControlCharacters) {
    EXPECT_EQ(http::message_of("{\"error\": \"\\u001b[2Jgone\\u0007\"}"), "\\x1b[2Jgone\\x07");
    EXPECT_EQ(http::message_of("two\nlines\r"), "two\n  lines\\x0d");
}

TEST_F(Broken, NoDevelopmentRoutes) {
    VllmStandIn server({.model = model("a", 1), .development_mode = false});
    expect_left_alone(server, AllOf(HasSubstr("/is_paused"), HasSubstr("VLLM_SERVER_DEV_MODE=1")));
}

TEST_F(Broken, AnotherShape) {
    VllmStandIn server({.model = model("a", 1, DType::float32, 44)});
    expect_left_alone(server, AllOf(HasSubstr("model.embed_tokens.weight"), HasSubstr("[44, 24]")));
}

TEST_F(Broken, OtherNames) {
    const std::string other = model("a", 1);
    const auto files = model::Safetensors::open(other);
    std::vector<std::pair<std::string, Tensor>> tensors;
    for (const std::string& name : files.names()) tensors.emplace_back("other." + name, files.tensor(name));
    const fs::path renamed = folder_ / "renamed";
    fs::create_directory(renamed);
    model::write_safetensors((renamed / "model.safetensors").string(), tensors);
    VllmStandIn server({.model = renamed.string()});
    expect_left_alone(server, AllOf(HasSubstr("other.model.embed_tokens.weight"),
                                    HasSubstr("the engine holds"), HasSubstr("the trainer does not")));
}

TEST_F(Broken, AnotherKindOfServer) {
    http::Server server({.listen = "127.0.0.1:0"});
    server.route("GET", "/model_info", [](http::Request&, http::Responder answer) {
        answer.send(200, std::string(R"({"tandem": {"receiver": "unix-abstract:x"}})"));
    });
    server.start();
    expect_named("vllm://127.0.0.1:" + std::to_string(server.port()),
                 AllOf(HasSubstr("not a vLLM server"), HasSubstr("use tandem://")));
}

// Every route with 500: up to the load the old weights are served.
TEST_F(Broken, AFailureBeforeTheLoadLeavesTheOldWeightsServing) {
    for (const char* route :
         {"/version", "/v1/models", "/is_paused", "/weight_info", "/pause", "/update_weight_version"}) {
        SCOPED_TRACE(route);
        VllmStandIn server({.model = model("a", 1), .fails = {{route, 500}}});
        expect_left_alone(server, AllOf(HasSubstr(server.url()), HasSubstr(route), HasSubstr("HTTP 500"),
                                        HasSubstr("the server's log")));
    }
}

TEST_F(Broken, AFailureInTheLoadLeavesItPausedAndTheNextPushHeals) {
    for (const char* route : {"/collective_rpc", "/reset_prefix_cache"}) {
        SCOPED_TRACE(route);
        VllmStandIn server({.model = model("a", 1), .fails = {{route, 500}}});
        expect_named(server.url(), AllOf(HasSubstr(route), HasSubstr("HTTP 500")));
        EXPECT_TRUE(server.paused());
        EXPECT_EQ(server.weight_version(), "loading 1");

        server.set_failure("/pause", 500);  // a push that does not come as far as the load heals nothing
        EXPECT_FALSE(push(model("c", 4), {server.url()})[0].whole);
        EXPECT_TRUE(server.paused());
        server.mend();
        const std::string next = model("d", 5);
        const auto outcomes = push(next, {server.url()});
        EXPECT_TRUE(outcomes[0].whole) << outcomes[0].error;
        EXPECT_FALSE(server.paused());
        EXPECT_EQ(server.weight_version(), "1");
        EXPECT_EQ(server.weights(), bytes_of_directory(next));
        EXPECT_THAT(server.violations(), IsEmpty());
    }
}

TEST_F(Broken, OneSessionHealsAfterItsOwnFailures) {
    VllmStandIn server({.model = model("a", 1)});
    const auto world = comm::solo();
    const std::string next = model("b", 2);
    const DirectorySource source(next, world);
    Session session(world, source,
                    engine::connect(server.url(), Deadline::after_ms(20'000), {.staging = staging()}));
    std::int64_t version = 0;
    for (const char* route :
         {"/is_paused", "/pause", "/update_weight_version", "/collective_rpc", "/resume"}) {
        SCOPED_TRACE(route);
        server.set_failure(route, 500);
        EXPECT_THAT(test::error_of([&] { session.push(++version); }), HasSubstr(route));
        server.mend();
        session.push(++version);
        EXPECT_EQ(server.weights(), bytes_of_directory(next));
        EXPECT_EQ(server.weight_version(), std::to_string(version));
        EXPECT_FALSE(server.paused());
    }
    EXPECT_THAT(server.violations(), IsEmpty());
    EXPECT_THAT(staged(), IsEmpty());
}

}  // namespace
}  // namespace tandem::sync
