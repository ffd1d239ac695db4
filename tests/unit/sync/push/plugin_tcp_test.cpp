// A push into a vLLM with our plug-in whose worker is reached over TCP, as on another host.
#include <gmock/gmock.h>

#include <cstdlib>

#include "tests/support/error_of.h"
#include "tests/support/soon.h"
#include "tests/unit/sync/push/plugin_fixture.h"

namespace tandem::sync {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr const char* kKeyVariable = "TANDEM_API_KEY";

class PluginPushOverTcp : public PluginPush {
  protected:
    PluginPushOverTcp() : PluginPush("127.0.0.1:0", "the key") { ::setenv(kKeyVariable, "the key", 1); }
    ~PluginPushOverTcp() override { ::unsetenv(kKeyVariable); }
    void move_it_to_another_host() {
        worker_->say_it_runs_on("another host");
        worker_->say_it_receives_at("unix-abstract:of-another-host");
    }
    void expect_pushes(int from_version) {
        for (int version = from_version; version < from_version + 3; ++version) {
            const std::string next = model("next" + std::to_string(version), 10 + version);
            const ServerOutcome outcome = push(next);
            ASSERT_TRUE(outcome.whole) << outcome.error;
            expect_served(next, std::to_string(version));
        }
    }
};

TEST_F(PluginPushOverTcp, EveryByteLandsFromHereAndFromAnotherHost) {
    options_ = "?transport=tcp&connections=2";
    expect_pushes(1);
    move_it_to_another_host();
    options_ = "";
    expect_pushes(4);
}

TEST_F(PluginPushOverTcp, AFailureBeforeOrInTheLoadHealsAsOnOneHost) {
    move_it_to_another_host();
    expect_pushes(1);
    worker_->fail(VllmWorkerStandIn::Fails::before_the_load);
    EXPECT_FALSE(push(model("refused", 2)).whole);
    EXPECT_FALSE(server_->paused());
    EXPECT_EQ(server_->weight_version(), "3");
    worker_->fail(VllmWorkerStandIn::Fails::in_the_load);
    EXPECT_FALSE(push(model("stumbled", 3)).whole);
    EXPECT_TRUE(server_->paused());
    const std::string next = model("healing", 77);
    const ServerOutcome outcome = push(next);
    EXPECT_TRUE(outcome.whole) << outcome.error;
    EXPECT_EQ(server_->weights(), bytes_of_directory(next));
    EXPECT_FALSE(server_->paused());
    EXPECT_TRUE(worker_->whole());
}

TEST_F(PluginPushOverTcp, WhoDoesNotKnowTheKeyIsRefusedByName) {
    move_it_to_another_host();
    ::setenv(kKeyVariable, "a guess", 1);
    EXPECT_THAT(push(model("next", 2)).error, AllOf(HasSubstr(server_->url()), HasSubstr("key")));
    EXPECT_EQ(server_->weights(), bytes_of_directory(old_));
    EXPECT_FALSE(server_->paused());
}

TEST_F(PluginPush, AWorkerOfAnotherHostThatDoesNotListenIsNamedWithWhatToDo) {
    worker_->say_it_runs_on("another host");
    EXPECT_THAT(push(model("next", 2)).error,
                AllOf(HasSubstr(server_->url()), HasSubstr("another host"), HasSubstr("TANDEM_DATA_LISTEN")));
    EXPECT_EQ(server_->weights(), bytes_of_directory(old_));
}

TEST_F(PluginPush, ListeningWithoutAKeyIsRefused) {
    VllmWorkerStandIn open_to_all(old_, "127.0.0.1:0", "");
    EXPECT_THAT(test::error_of([&] { open_to_all.init(); }), HasSubstr("without a key"));
}

TEST_F(PluginPush, OptionsOfAServerWithoutThePluginAreRefused) {
    const VllmStandIn plain({.model = old_});
    EXPECT_THAT(test::error_of([&] { engine::connect(plain.url() + "?transport=tcp", test::soon()); }),
                AllOf(HasSubstr(plain.url()), HasSubstr("without it")));
}

}  // namespace
}  // namespace tandem::sync
