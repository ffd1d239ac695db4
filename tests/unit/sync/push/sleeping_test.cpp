// Pushes into a vLLM whose memory is asleep: its weights are woken, the rest and its pause stay until whoever put it to
// sleep wakes it.
#include <gmock/gmock.h>

#include "engine_adapter/vllm/server.h"
#include "tests/support/soon.h"
#include "tests/unit/sync/push/push_fixture.h"

namespace tandem::sync {
namespace {

using test::soon;

using testing::Contains;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::Not;

class SleepingServer : public Push {
  protected:
    explicit SleepingServer(bool statistics = true)
        : server_({.model = model("old", 1), .sleep_mode = true, .statistics = statistics}),
          other_(server_.url(), "") {}
    ~SleepingServer() override { EXPECT_THAT(server_.violations(), IsEmpty()); }

    void post(const std::string& target) { other_.post(target, "", soon()); }
    // It has the next version, and serves it once it is woken.
    void expect_pushed_in_its_sleep(const std::string& version) {
        const std::string next = model("next", 2);
        const ServerOutcome outcome = push(next, {server_.url()})[0];
        EXPECT_TRUE(outcome.whole) << outcome.error;
        EXPECT_TRUE(server_.paused());
        EXPECT_THAT(server_.asleep(), ElementsAre("kv_cache"));
        EXPECT_EQ(server_.weights(), bytes_of_directory(next));
        EXPECT_EQ(server_.weight_version(), version);
        EXPECT_THAT(server_.calls(), Not(Contains("POST /resume")));
        post("/wake_up?tags=kv_cache");
        EXPECT_FALSE(server_.paused());
        EXPECT_THAT(server_.asleep(), IsEmpty());
    }

    VllmStandIn server_;
    engine::VllmServer other_;
};

TEST_F(SleepingServer, ItsWeightsAreWokenAndItsCacheIsNot) {
    post("/sleep?level=2&mode=wait");
    expect_pushed_in_its_sleep("1");
    post("/sleep?level=1&mode=wait");
    expect_pushed_in_its_sleep("2");
}

TEST_F(SleepingServer, OneWhoseCacheAloneSleepsIsNotWoken) {
    other_.pause(engine::InFlight::wait, soon());
    post("/release_kv_cache_memory");
    const std::string next = model("next", 2);
    EXPECT_TRUE(push(next, {server_.url()})[0].whole);
    EXPECT_THAT(server_.calls(), Not(Contains("POST /wake_up")));
    EXPECT_THAT(server_.asleep(), ElementsAre("kv_cache"));
    EXPECT_TRUE(server_.paused());
}

// As memory.engine_sleep = all leaves it, and a push whose waking never came.
TEST_F(SleepingServer, OneThatHoldsNoWholeVersionIsHealedButNotResumed) {
    other_.set_weight_version("loading 4", soon());
    post("/sleep?level=2&mode=wait");
    expect_pushed_in_its_sleep("4");
    other_.set_weight_version("loading 4", soon());
    post("/sleep?level=2&mode=wait");
    EXPECT_FALSE(other_.wake_up("weights", soon()));
    expect_pushed_in_its_sleep("4");
}

TEST_F(SleepingServer, OneThatDoesNotWakeIsNamedAndKeepsWhatItHas) {
    post("/sleep?level=1&mode=wait");
    const auto before = server_.weights();
    server_.set_failure("/wake_up", 500);
    const ServerOutcome outcome = push(model("next", 2), {server_.url()})[0];
    EXPECT_FALSE(outcome.whole);
    EXPECT_THAT(outcome.error,
                testing::AllOf(testing::HasSubstr(server_.url()), testing::HasSubstr("/wake_up")));
    EXPECT_EQ(server_.weights(), before);
    EXPECT_THAT(server_.asleep(), ElementsAre("kv_cache", "weights"));
    server_.mend();
    expect_pushed_in_its_sleep("1");
}

TEST_F(SleepingServer, OneThatWasWokenAgainIsAServerAsAnyOther) {
    post("/sleep?level=1&mode=wait");
    post("/wake_up");
    const std::string next = model("next", 2);
    EXPECT_TRUE(push(next, {server_.url()})[0].whole);
    EXPECT_FALSE(server_.paused());
    EXPECT_THAT(server_.calls(), Not(Contains("GET /metrics")));
}

class SilentServer : public SleepingServer {
  protected:
    SilentServer() : SleepingServer(/*statistics=*/false) {}
};

// Its pause is taken for one; waking it would resume it.
TEST_F(SilentServer, OneThatKeepsNoStatisticsIsNotWoken) {
    other_.pause(engine::InFlight::wait, soon());
    const std::string next = model("next", 2);
    EXPECT_TRUE(push(next, {server_.url()})[0].whole);
    EXPECT_TRUE(server_.paused());
    EXPECT_THAT(server_.calls(), Not(Contains("POST /wake_up")));
}

}  // namespace
}  // namespace tandem::sync
