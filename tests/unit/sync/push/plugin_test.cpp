// A push into a vLLM with our plug-in: what is done before it is paused and what in the pause, what each failure leaves,
// and what the next push makes of that. The worker is a stand-in that really receives.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <thread>

#include "common/comm/launch.h"
#include "common/file_descriptor.h"
#include "common/http/client.h"
#include "engine_adapter/vllm/server.h"
#include "sync/push/directory_source.h"
#include "tests/support/error_of.h"
#include "tests/support/soon.h"
#include "tests/unit/sync/push/plugin_fixture.h"

namespace tandem::sync {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST_F(PluginPush, OnlyTheLoadIsInsideThePause) {
    for (int version = 1; version <= 3; ++version) {
        const std::string next = model("next" + std::to_string(version), 10 + version);
        const ServerOutcome outcome = push(next);
        ASSERT_TRUE(outcome.whole) << outcome.error;
        EXPECT_EQ(outcome.kind, "vllm");
        EXPECT_EQ(outcome.before, version - 1);
        EXPECT_EQ(outcome.version, version);
        expect_served(next, std::to_string(version));
    }
    const std::vector<std::string> calls = server_->calls();
    const auto paused = std::find(calls.begin(), calls.end(), "POST /pause");
    ASSERT_NE(paused, calls.end());
    EXPECT_THAT(std::vector<std::string>(paused - 2, std::find(paused, calls.end(), "POST /resume")),
                ElementsAre("POST /collective_rpc", "POST /start_weight_update", "POST /pause",
                            "POST /update_weight_version", "POST /update_weights", "POST /collective_rpc",
                            "POST /finish_weight_update", "POST /reset_prefix_cache"));
}

TEST_F(PluginPush, ChangesAreStagedOverWhatIsStaged) {
    const auto world = comm::solo();
    const std::string first = model("first", 5);
    const std::string second = model("second", 6);
    std::int64_t version = 0;
    for (const Mode mode : {Mode::delta, Mode::gather}) {
        SessionOptions options;
        options.mode = mode;
        struct Changing final : WeightSource {
            std::vector<NamedTensor> named;
            const std::vector<NamedTensor>& tensors() const override { return named; }
            Event ready() const override { return {}; }
        } source;
        const DirectorySource a(first, world);
        const DirectorySource b(second, world);
        source.named = a.tensors();
        Session session(world, source, connect(), options);
        session.push(++version);
        EXPECT_EQ(server_->weights(), bytes_of_directory(first));
        EXPECT_TRUE(session.weights_match().match);
        source.named = b.tensors();
        EXPECT_FALSE(session.weights_match().match);
        session.push(++version);
        EXPECT_EQ(server_->weights(), bytes_of_directory(second));
        EXPECT_TRUE(session.weights_match().match);
    }
}

TEST_F(PluginPush, AFailureBeforeTheLoadLeavesTheOldWeightsServing) {
    worker_->fail(VllmWorkerStandIn::Fails::before_the_load);
    const ServerOutcome outcome = push(model("next", 2));
    EXPECT_FALSE(outcome.whole);
    EXPECT_THAT(outcome.error, AllOf(HasSubstr("/update_weights"), HasSubstr("the worker refuses")));
    expect_served(old_, "default");
    expect_healed_by_the_next_push("1");
}

TEST_F(PluginPush, AFailureOfAnyStepBeforeTheLoadDoesToo) {
    for (const char* route : {"/init_weight_transfer_engine", "/collective_rpc", "/start_weight_update",
                              "/pause", "/weight_info"}) {
        SCOPED_TRACE(route);
        server_->set_failure(route, 500);
        const ServerOutcome outcome = push(model("next", 2));
        EXPECT_FALSE(outcome.whole);
        EXPECT_THAT(outcome.error, AllOf(HasSubstr(route), HasSubstr("HTTP 500")));
        server_->mend();
        EXPECT_EQ(server_->weights(), bytes_of_directory(old_));
        EXPECT_EQ(server_->weight_version(), "default");
    }
    expect_healed_by_the_next_push("1");
}

TEST_F(PluginPush, AFailureInTheLoadLeavesItPausedAndTheNextPushHeals) {
    worker_->fail(VllmWorkerStandIn::Fails::in_the_load);
    const ServerOutcome outcome = push(model("next", 2));
    EXPECT_FALSE(outcome.whole);
    EXPECT_THAT(outcome.error, HasSubstr("the worker stumbles"));
    EXPECT_TRUE(server_->paused());
    EXPECT_EQ(server_->weight_version(), "loading 1");

    worker_->fail(VllmWorkerStandIn::Fails::
                      before_the_load);  // a push that does not come as far as the load heals nothing
    EXPECT_FALSE(push(model("third", 3)).whole);
    EXPECT_TRUE(server_->paused());
    expect_healed_by_the_next_push("1");
}

TEST_F(PluginPush, AnAnswerThatIsLostInTheLoadCountsAsAFailureThere) {
    server_->set_failure("/update_weights", 0);
    const ServerOutcome outcome = push(model("next", 2), std::chrono::milliseconds(1500));
    EXPECT_FALSE(outcome.whole);
    EXPECT_THAT(outcome.error, HasSubstr("no answer before the deadline"));
    EXPECT_TRUE(server_->paused());
    EXPECT_EQ(server_->weight_version(), "loading 1");
    server_->mend();
    expect_healed_by_the_next_push("1");
}

TEST_F(PluginPush, AFailureAfterTheLoadLeavesItPausedToo) {
    for (const char* route : {"/finish_weight_update", "/reset_prefix_cache"}) {
        SCOPED_TRACE(route);
        server_->set_failure(route, 500);
        EXPECT_THAT(push(model("next", 2)).error, HasSubstr(route));
        EXPECT_TRUE(server_->paused());
        server_->mend();
        const std::string next = model("healing", 78);
        EXPECT_TRUE(push(next).whole);
        EXPECT_EQ(server_->weights(), bytes_of_directory(next));
        EXPECT_FALSE(server_->paused());
    }
}

TEST_F(PluginPush, OneSessionHealsAfterItsOwnFailures) {
    const auto world = comm::solo();
    const std::string next = model("next", 2);
    const DirectorySource source(next, world);
    Session session(world, source, connect());
    std::int64_t version = 0;
    for (const char* route :
         {"/is_paused", "/pause", "/update_weight_version", "/update_weights", "/resume"}) {
        SCOPED_TRACE(route);
        server_->set_failure(route, 500);
        EXPECT_THAT(test::error_of([&] { session.push(++version); }), HasSubstr(route));
        if (route == std::string("/update_weight_version")) {  // resumed, whether it could be told or not
            EXPECT_FALSE(server_->paused());
            EXPECT_EQ(worker_->note(), "");
        }
        server_->mend();
        session.push(++version);
        expect_served(next, std::to_string(version));
    }
}

TEST_F(PluginPush, APauseThatAKilledPusherLeftEndsWithTheNextPush) {
    server_->set_paused(true);
    worker_->leave_note("paused by a push");
    expect_healed_by_the_next_push("1");
}

TEST_F(PluginPush, APauseOfSomebodyElseStays) {
    server_->set_paused(true);
    const std::string next = model("next", 2);
    EXPECT_TRUE(push(next).whole);
    EXPECT_TRUE(server_->paused());
    EXPECT_EQ(server_->weights(), bytes_of_directory(next));
}

TEST_F(PluginPush, AServerThatSleepsHasItsWeightsWokenAndStaysAsleep) {
    engine::VllmServer other(server_->url(), "");
    const Deadline soon = test::soon();
    for (const char* level : {"1", "2"}) {
        other.post(std::string("/sleep?mode=wait&level=") + level, "", soon);
        const std::string next = model(std::string("next") + level, 2 + level[0]);
        const ServerOutcome outcome = push(next);
        EXPECT_TRUE(outcome.whole) << outcome.error;
        EXPECT_TRUE(server_->paused());
        EXPECT_THAT(server_->asleep(), testing::ElementsAre("kv_cache"));
        other.wake_up("kv_cache", soon);
        expect_served(next, level);
    }
    EXPECT_THAT(server_->calls(), testing::Not(testing::Contains("POST /resume")));
}

TEST_F(PluginPush, AnUpdateThatAKilledPusherBeganHindersNobody) {
    http::Client client("http://" + server_->url().substr(std::string("vllm://").size()), "");
    EXPECT_EQ(client.request("POST", "/start_weight_update", "", test::soon()).status, 200);
    expect_healed_by_the_next_push("1");
    EXPECT_EQ(std::ranges::count(server_->calls(), "POST /start_weight_update"), 1)
        << "each worker would refuse a second start";
}

TEST_F(PluginPush, TrainersTakeTurns) {
    auto first = connect();
    EXPECT_THAT(test::error_of([&] { connect(Deadline::after_ms(300)); }),
                AllOf(HasSubstr(server_->url()), HasSubstr("another trainer is connected")));
    std::jthread leaves([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
        first.reset();
    });
    const std::string next = model("next", 2);
    EXPECT_TRUE(push(next).whole);
    expect_served(next, "1");
}

TEST_F(PluginPush, APluginOfAnotherVersionIsNamed) {
    worker_->speak_protocol(2);
    EXPECT_THAT(push(model("next", 2)).error, AllOf(HasSubstr(server_->url()), HasSubstr("speaks protocol 2"),
                                                    HasSubstr("same version of both")));
    EXPECT_EQ(server_->weights(), bytes_of_directory(old_));
}

// As of a server in another network namespace, or on another host: at once, not at the deadline.
TEST_F(PluginPush, AReceiverThatCannotBeReachedIsNamed) {
    worker_->say_it_receives_at("unix-abstract:nobody-listens-here");
    EXPECT_THAT(push(model("next", 2), std::chrono::hours(1)).error,
                AllOf(HasSubstr(server_->url()), HasSubstr("nobody-listens-here"), HasSubstr("same host")));
    EXPECT_EQ(server_->weights(), bytes_of_directory(old_));
}

// vLLM closes the connection behind the answer to a request that failed: the next call must not meet that.
TEST(VllmServer, AConnectionIsNotUsedAgainAfterAFailure) {
    const FileDescriptor listener(::socket(AF_INET, SOCK_STREAM, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof address;
    ASSERT_EQ(::bind(listener.get(), reinterpret_cast<const sockaddr*>(&address), length), 0);
    ASSERT_EQ(::listen(listener.get(), 4), 0);
    ASSERT_EQ(::getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &length), 0);
    std::jthread answers([&] {  // one request of each connection, which stays open
        std::vector<FileDescriptor> open;
        for (int i = 0; i < 2; ++i) {
            open.emplace_back(::accept(listener.get(), nullptr, nullptr));
            std::string request(4096, ' ');
            EXPECT_GT(::recv(open.back().get(), request.data(), request.size(), 0), 0);
            constexpr std::string_view kAnswer = "HTTP/1.1 500 no\r\nContent-Length: 0\r\n\r\n";
            EXPECT_EQ(::send(open.back().get(), kAnswer.data(), kAnswer.size(), 0), std::ssize(kAnswer));
        }
    });
    engine::VllmServer server("vllm://127.0.0.1:" + std::to_string(ntohs(address.sin_port)), "");
    for (int i = 0; i < 2; ++i)
        EXPECT_THAT(test::error_of([&] { server.is_paused(test::soon()); }), HasSubstr("HTTP 500"));
    ::shutdown(listener.get(), SHUT_RDWR);
}

TEST_F(PluginPush, WeightsAreNotReadInPlace) {
    const auto world = comm::solo();
    const DirectorySource source(model("next", 2), world);
    SessionOptions options;
    options.mode = Mode::alias;
    EXPECT_THAT(test::error_of([&] { Session(world, source, connect(), options); }),
                HasSubstr("read weights in place"));
}

}  // namespace
}  // namespace tandem::sync
