// What the loop does where log-probs or gradients are infinite or NaN.
#include <gmock/gmock.h>

#include <limits>
#include <string>

#include "common/error.h"
#include "tests/unit/trainer/loop/pretence.h"
#include "trainer/run/summary.h"

namespace tandem::trainer {
namespace {

TEST(Loop, RefusesLogprobsThatAreNoNumbers) {
    Pretence r;
    r.world.logprob_error = std::numeric_limits<float>::quiet_NaN();
    EXPECT_THROW(r.run(), Error);
}

TEST(Loop, AWarmStartThatIsNotFiniteStopsByName) {
    Pretence r;
    r.learner.bad_from = 1;
    std::string message;
    try {
        r.run();
    } catch (const Error& error) {
        message = error.what();
    }
    EXPECT_THAT(message,
                testing::StartsWith("step 2 of the warm start is not finite: the gradient norm is nan; "
                                    ""));
    EXPECT_THAT(message, testing::HasSubstr(
                             ". Nothing of it was applied, saved or published; train.non_finite = skip"));
    EXPECT_EQ(r.learner.rates.size(), 1u);
    EXPECT_THAT(r.world.events, testing::Not(testing::Contains("sync 1")));
}

TEST(Loop, StepsThatAreNotFiniteAreLeftOutAndCounted) {
    Pretence r;
    r.config.train.non_finite = "skip";
    r.config.sft.steps = 4;
    r.learner.bad_from = 1;
    r.learner.bad_until = 3;
    r.run();
    EXPECT_EQ(r.result.skipped_steps, 2);
    EXPECT_EQ(r.result.skipped_in_a_row, 0);
    EXPECT_EQ(summary_of(r.config, r.result)["skipped_steps"], 2);
    EXPECT_FALSE(r.metrics[0].contains("skipped"));
    EXPECT_EQ(r.metrics[1]["skipped"], 1);
    EXPECT_TRUE(r.metrics[1]["grad_norm"].is_null());
    EXPECT_THAT(r.metrics[1]["non_finite"].get<std::string>(),
                testing::HasSubstr("the gradient norm is nan"));
    EXPECT_EQ(r.learner.rates.size(), 2u + 6u);  // of the warm start, and of three steps
    LoopState state;
    state.result = r.result;
    auto saved = to_json(state);
    EXPECT_EQ(loop_state_from_json(saved).result.skipped_steps, 2);
    EXPECT_EQ(loop_state_from_json(saved).result.syncs.back().pack, 0.7);
    saved.erase("skipped_steps");  // as earlier versions wrote it
    saved.erase("skipped_in_a_row");
    for (auto& times : saved["syncs"]) times.erase(9), times.erase(8);
    const LoopResult before = loop_state_from_json(saved).result;
    EXPECT_EQ(before.skipped_steps, 0);
    EXPECT_EQ(before.syncs.back().speed_of_light, 1.0);
    EXPECT_EQ(before.syncs.back().pack, 0.0);
}

TEST(Loop, TenStepsInARowThatAreNotFiniteEndTheRun) {
    Pretence r;
    r.config.train.non_finite = "skip";
    r.config.sft.steps = 20;
    r.learner.bad_from = 3;
    EXPECT_THROW(r.run(), Error);
    EXPECT_EQ(r.learner.steps, 13);
}

}  // namespace
}  // namespace tandem::trainer
