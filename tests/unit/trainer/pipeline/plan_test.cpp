// How a model is cut into stages: TorchTitan's and NeMo's rules and refusals; which rank has them, and the lists of a batch.
#include <gmock/gmock.h>

#include <algorithm>
#include <functional>

#include "common/error.h"
#include "tests/support/error_of.h"
#include "trainer/pipeline/check.h"
#include "trainer/pipeline/csv.h"
#include "trainer/pipeline/lower.h"
#include "trainer/pipeline/plan.h"

namespace tandem::pipeline {
namespace {

using testing::HasSubstr;
using Counts = std::vector<int>;

Counts layers_of(const Plan& plan) {
    Counts counts;
    for (const DecoderPart& part : plan.parts()) counts.push_back(part.layers());
    return counts;
}

Options options(const std::string& schedule, const std::function<void(Options&)>& change = {}) {
    Options o;
    o.schedule = schedule;
    if (change) change(o);
    return o;
}

TEST(PipelinePlan, StagesOfRanks) {
    EXPECT_EQ(Plan(options("1F1B"), 4, 32).rank_of_stage(), (Counts{0, 1, 2, 3}));
    EXPECT_EQ(layers_of(Plan(options("1F1B"), 4, 32)), (Counts{8, 9, 8, 7}));
    const Plan looped(options("interleaved1f1b"), 4, 32);
    EXPECT_EQ(looped.rank_of_stage(), (Counts{0, 1, 2, 3, 0, 1, 2, 3}));
    EXPECT_EQ(layers_of(looped), (Counts{4, 5, 4, 4, 4, 4, 4, 3}));
    EXPECT_EQ(looped.stages_of(1), (Counts{1, 5}));
    EXPECT_EQ(looped.parts_of(1), (std::vector<DecoderPart>{{4, 9, false, false}, {21, 25, false, false}}));
    const Plan there_and_back(options("ZBVZeroBubble"), 3, 10);
    EXPECT_EQ(there_and_back.rank_of_stage(), (Counts{0, 1, 2, 2, 1, 0}));
    EXPECT_TRUE(there_and_back.parts_of(0)[0].embeds);
    EXPECT_TRUE(there_and_back.parts_of(0)[1].heads);
}

// NeMo's calculate_virtual_stages, executed: embedding and head weigh nothing there.
TEST(PipelinePlan, LayersPerStageAsNeMoCountsThem) {
    using Round = Options::Round;
    const auto stages = [](int layers, int each, int pp, const char* schedule, Round round) {
        return Plan(options(schedule,
                            [&](Options& o) {
                                o.layers_per_stage = each;
                                o.round = round;
                                o.first_stage_less_layers = o.last_stage_less_layers = 0;
                            }),
                    pp, layers)
            .stages();
    };
    EXPECT_EQ(stages(32, 4, 4, "Interleaved1F1B", Round::refuse), 8);
    EXPECT_EQ(stages(32, 5, 4, "Interleaved1F1B", Round::up), 8);
    EXPECT_EQ(stages(32, 3, 4, "Interleaved1F1B", Round::down), 8);
    EXPECT_EQ(stages(32, 8, 4, "1F1B", Round::refuse), 4);
    EXPECT_EQ(stages(32, 32, 4, "1F1B", Round::up), 4);
    EXPECT_THROW(stages(32, 7, 4, "Interleaved1F1B", Round::refuse), BadInput);
    EXPECT_THROW(stages(32, 6, 4, "1F1B", Round::up), BadInput);  // 8 stages, 2 a rank
    EXPECT_THROW(stages(32, 32, 4, "1F1B", Round::down), BadInput);
    EXPECT_EQ(
        layers_of(Plan(
            options("1F1B", [](Options& o) { o.first_stage_less_layers = o.last_stage_less_layers = 0; }), 3,
            10)),
        (Counts{4, 3, 3}));
}

// TorchTitan's ceil((layers + weights) / layers_per_stage).
TEST(PipelinePlan, LayersPerStageAsTorchTitanCountsThem) {
    const auto plan = [](int layers, int each, int pp) {
        return Plan(options("Interleaved1F1B", [&](Options& o) { o.layers_per_stage = each; }), pp, layers);
    };
    EXPECT_EQ(layers_of(plan(30, 4, 4)), (Counts{3, 4, 4, 4, 4, 4, 4, 3}));
    EXPECT_THAT(test::error_of([&] { plan(32, 4, 4); }), HasSubstr("layers_per_stage 4 makes 9 stages"));
}

TEST(PipelinePlan, StagesByNames) {
    const auto plan = [](std::vector<std::string> names, const char* schedule, int pp) {
        return Plan(options(schedule, [&](Options& o) { o.split = std::move(names); }), pp, 6);
    };
    EXPECT_EQ(layers_of(plan({"model.layers.4"}, "GPipe", 2)), (Counts{4, 2}));
    EXPECT_EQ(layers_of(plan({"layers.0", "layers.2", "model.norm"}, "LoopedBFS", 2)), (Counts{0, 2, 4, 0}));
    const std::vector<std::pair<std::function<void()>, std::string>> table{
        {[&] { plan({"model.layers.6"}, "GPipe", 2); }, "model.layers.6 begins no stage"},
        {[&] { plan({"model.layers.1.mlp"}, "GPipe", 2); }, "begins no stage"},
        {[&] { plan({"layers.-1"}, "GPipe", 2); }, "begins no stage"},
        {[&] { plan({""}, "GPipe", 2); }, "begins no stage"},
        {[&] {
             plan({"layers.3", "layers.2"}, "GPipe", 3);
         },
         "layers.2 is not behind the stage before it"},
        {[&] {
             plan({"layers.3", "layers.3"}, "GPipe", 3);
         },
         "layers.3 is not behind the stage before it"},
        {[&] {
             plan({"layers.3", "layers.4"}, "GPipe", 2);
         },
         "3 stages, which pp 2 does not divide"},
        {[&] { plan({"layers.3"}, "ZBVZeroBubble", 2); }, "exactly 2 stages a rank"}};
    for (const auto& [body, message] : table) EXPECT_THAT(test::error_of(body), HasSubstr(message));
}

TEST(PipelinePlan, MicrobatchesAreThoseThatTheScheduleAdmits) {
    for (const std::string& name : schedule_names()) {
        for (int pp = 2; pp <= 6; ++pp) {
            const Plan plan(options(name), pp, 24);
            for (int needed = 1; needed <= 20; ++needed) {
                const int count = plan.microbatches(needed);
                EXPECT_GE(count, std::max(needed, pp));
                EXPECT_NO_THROW(plan.compute(count)) << name << " " << pp << " " << count;
                for (int fewer = std::max(needed, pp); fewer < count; ++fewer)
                    EXPECT_THROW(plan.compute(fewer), BadInput) << name << " " << pp << " " << fewer;
            }
        }
    }
    EXPECT_EQ(Plan(options("1F1B", [](Options& o) { o.microbatches = 6; }), 2, 8).microbatches(3), 6);
    EXPECT_EQ(Plan(options("1F1B", [](Options& o) { o.microbatches = 6; }), 2, 8).microbatches(7), 7);
    EXPECT_THROW(Plan(options("1F1B", [](Options& o) { o.microbatches = 1; }), 2, 8), BadInput);
}

TEST(PipelinePlan, ForwardsAlone) {
    for (const std::string& name : schedule_names()) {
        for (int count = 1; count <= 9; ++count) {
            const Plan plan(options(name), 3, 24);
            const Schedule lists = plan.forward_lists(count);
            int forwards = 0, sends = 0, receives = 0;
            for (const ActionList& list : lists.ranks) {
                for (const Action& action : list) {
                    forwards += action.kind == ActionKind::forward ? 1 : 0;
                    sends += action.kind == ActionKind::send_f ? 1 : 0;
                    receives += action.kind == ActionKind::recv_f ? 1 : 0;
                }
            }
            EXPECT_EQ(forwards, plan.stages() * count);
            EXPECT_EQ(sends, receives);
        }
    }
}

TEST(PipelinePlan, ListsOfAFile) {
    const Schedule own = make_schedule("Interleaved1F1B", 2, 2, 4);
    const auto plan = [](const Schedule& lists, int pp) {
        return Plan(options("GPipe", [&](Options& o) { o.lists = lists; }), pp, 8);
    };
    for (const Schedule& lists : {own, lower(own)}) {
        const Plan found = plan(lists, 2);
        EXPECT_EQ(found.rank_of_stage(), own.rank_of_stage);
        EXPECT_EQ(found.microbatches(3), 4);
        EXPECT_THAT(test::error_of([&] { found.microbatches(5); }), HasSubstr("the batch needs 5"));
        EXPECT_NO_THROW(check_lowered(found.lists(4), own));
    }
    EXPECT_THAT(test::error_of([&] { plan(own, 4); }), HasSubstr("pp is 4, and the lists are of 2 ranks"));
    Schedule broken = own;
    broken.ranks[1].pop_back();
    EXPECT_THROW(plan(broken, 2), BadInput);
}

}  // namespace
}  // namespace tandem::pipeline
