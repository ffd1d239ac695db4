#include "sync/session/push_protocol.h"

#include <gmock/gmock.h>

#include <array>
#include <string>
#include <vector>

namespace tandem::sync {
namespace {

// The steps of a push, "pause 0" and so on; step number `fails` fails, counted from 0.
std::vector<std::string> steps_of(std::size_t engines, int fails = -1, bool* decided = nullptr) {
    constexpr std::array kNames{"pause", "begin", "transfer", "commit", "resume", "abort"};
    PushProtocol push(engines);
    std::vector<std::string> steps;
    while (const auto next = push.next()) {
        steps.push_back(kNames[static_cast<std::size_t>(next->step)] + (" " + std::to_string(next->engine)));
        push.done(static_cast<int>(steps.size()) - 1 != fails);
    }
    EXPECT_EQ(push.failed(), fails >= 0);
    if (decided != nullptr) *decided = push.decided();
    return steps;
}

using testing::ElementsAre;

TEST(PushProtocol, EveryEngineTakesEachStepBeforeTheNext) {
    bool decided = false;
    EXPECT_THAT(steps_of(2, -1, &decided),
                ElementsAre("pause 0", "pause 1", "begin 0", "begin 1", "transfer 0", "commit 0", "commit 1",
                            "resume 0", "resume 1"));
    EXPECT_TRUE(decided);
}

TEST(PushProtocol, ARankWithoutEnginesTakesPartInTheTransfer) {
    EXPECT_THAT(steps_of(0), ElementsAre("transfer 0"));
}

TEST(PushProtocol, UpToTheLastCommitAFailureAbortsWhoeverWasSpokenTo) {
    bool decided = true;
    EXPECT_THAT(steps_of(3, 0, &decided), ElementsAre("pause 0", "abort 0"));  // the pause may have arrived
    EXPECT_FALSE(decided);
    EXPECT_THAT(steps_of(3, 1), ElementsAre("pause 0", "pause 1", "abort 0", "abort 1"));
    for (int step = 2; step < 7; ++step) {  // to the last commit
        const auto steps = steps_of(2, step, &decided);
        EXPECT_FALSE(decided);
        ASSERT_EQ(steps.size(), static_cast<std::size_t>(step) + 3);
        EXPECT_EQ(steps[steps.size() - 2], "abort 0");
        EXPECT_EQ(steps.back(), "abort 1");
    }
}

TEST(PushProtocol, OnceDecidedEveryEngineIsResumed) {
    bool decided = false;
    const auto steps = steps_of(2, 7, &decided);  // resume 0
    EXPECT_TRUE(decided);
    EXPECT_EQ(steps.back(), "resume 1");
    PushProtocol push(1);
    for (int i = 0; i < 4; ++i) push.done(true);
    push.fail();
    EXPECT_EQ(push.next(), (PushProtocol::Next{PushStep::resume, 0}));
}

TEST(PushProtocol, AnAbortThatFailsDoesNotKeepTheOthersFromTheirs) {
    PushProtocol push(2);
    for (int i = 0; i < 4; ++i) push.done(true);
    push.fail();
    EXPECT_EQ(push.next(), (PushProtocol::Next{PushStep::abort, 0}));
    push.done(false);
    EXPECT_EQ(push.next(), (PushProtocol::Next{PushStep::abort, 1}));
    push.done(false);
    EXPECT_EQ(push.next(), std::nullopt);
}

}  // namespace
}  // namespace tandem::sync
