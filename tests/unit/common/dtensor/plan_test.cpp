// The planner's steps, in order, against PyTorch's greedy search worked by hand; refusals; bytes.
#include "common/dtensor/redistribute_plan.h"

#include <gmock/gmock.h>

#include "common/error.h"

namespace tandem {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

std::vector<std::string> steps(const Shape& shape, const std::vector<int>& mesh, const std::vector<int>& at,
                               const char* from, const char* to) {
    std::vector<std::string> result;
    for (const RedistributeStep& step :
         plan_redistribute(shape, mesh, at, parse_placements(from), parse_placements(to))) {
        result.push_back(fmt::format("{}: {} -> {} {} of {}", step.axis, to_string(step.from),
                                     to_string(step.to), to_string(step.kind),
                                     to_string(step.logical_shape)));
    }
    return result;
}

TEST(RedistributePlan, OneAxisIsOneDirectStep) {
    EXPECT_THAT(steps({8, 6}, {4}, {0}, "S(0)", "R"), ElementsAre("0: S(0) -> R all_gather of [8, 6]"));
    EXPECT_THAT(steps({8, 6}, {4}, {0}, "S(0)", "S(1)"), ElementsAre("0: S(0) -> S(1) all_to_all of [8, 6]"));
    EXPECT_THAT(steps({8, 6}, {4}, {0}, "R", "S(1)"), ElementsAre("0: R -> S(1) local_chunk of [8, 6]"));
    EXPECT_THAT(steps({8, 6}, {4}, {0}, "P", "R"), ElementsAre("0: P(sum) -> R all_reduce of [8, 6]"));
    EXPECT_THAT(steps({8, 6}, {4}, {0}, "P(avg)", "S(0)"),
                ElementsAre("0: P(avg) -> S(0) reduce_scatter of [8, 6]"));
    EXPECT_THAT(steps({8, 6}, {4}, {0}, "S(1)", "S(1)"), ElementsAre("0: S(1) -> S(1) none of [8, 6]"));
}

// An axis of one rank moves nothing, whatever changes its name.
TEST(RedistributePlan, AxisOfOneIsNoWork) {
    EXPECT_THAT(steps({8}, {1}, {0}, "P", "S(0)"), ElementsAre("0: P(sum) -> S(0) none of [8]"));
    EXPECT_THAT(steps({8}, {1, 2}, {0, 1}, "S(0), R", "R, S(0)"),
                ElementsAre("0: S(0) -> R none of [8]", "1: R -> S(0) local_chunk of [8]"));
}

// PyTorch's docstring: (S(0), S(0)) -> (R, S(0)) must undo the nested cut first.
TEST(RedistributePlan, NestedShardIsReplicatedFirst) {
    EXPECT_THAT(steps({9}, {2, 2}, {0, 1}, "S(0), S(0)", "R, S(0)"),
                ElementsAre("1: S(0) -> R all_gather of [5]", "0: S(0) -> R all_gather of [9]",
                            "1: R -> S(0) local_chunk of [9]"));
    EXPECT_THAT(steps({9}, {2, 2}, {1, 1}, "S(0), S(0)", "S(0), R"),
                ElementsAre("1: S(0) -> R all_gather of [4]"));
}

TEST(RedistributePlan, SwappedShards) {
    EXPECT_THAT(steps({8, 6}, {2, 2}, {0, 0}, "S(0), S(1)", "S(1), S(0)"),
                ElementsAre("1: S(1) -> R all_gather of [4, 6]", "0: S(0) -> S(1) all_to_all of [8, 6]",
                            "1: R -> S(0) local_chunk of [8, 3]"));
}

TEST(RedistributePlan, AlignedInnerShardStays) {
    EXPECT_THAT(steps({8, 6}, {2, 2}, {0, 0}, "P, S(1)", "S(0), S(1)"),
                ElementsAre("0: P(sum) -> S(0) reduce_scatter of [8, 6]"));
    EXPECT_THAT(steps({8, 6}, {2, 2}, {0, 0}, "S(0), P", "S(0), S(0)"),
                ElementsAre("1: P(sum) -> S(0) reduce_scatter of [4, 6]"));
}

// Without a cut source the walk is outer to inner only.
TEST(RedistributePlan, NoShardsGoOuterToInner) {
    EXPECT_THAT(steps({8}, {2, 2}, {0, 0}, "P, P(max)", "S(0), R"),
                ElementsAre("0: P(sum) -> S(0) reduce_scatter of [8]", "1: P(max) -> R all_reduce of [4]"));
    EXPECT_THAT(steps({8}, {2, 2, 2}, {0, 0, 0}, "R, R, R", "R, S(0), S(0)"),
                ElementsAre("1: R -> S(0) local_chunk of [8]", "2: R -> S(0) local_chunk of [4]"));
}

// An outer axis that cuts the same dim another way is as misaligned as one that does not cut it.
TEST(RedistributePlan, AnotherSplitFactorOutsideCounts) {
    EXPECT_THAT(steps({8}, {2, 2}, {0, 0}, "S(0), S(0)", "SS(0, 2), S(0)"),
                ElementsAre("1: S(0) -> R all_gather of [4]", "0: S(0) -> SS(0, 2) all_to_all of [8]",
                            "1: R -> S(0) local_chunk of [4]"));
}

TEST(RedistributePlan, PartialIsNeverATargetUnlessItStays) {
    EXPECT_THAT(steps({8}, {2, 2}, {0, 0}, "P, S(0)", "P, R"), ElementsAre("1: S(0) -> R all_gather of [8]"));
    const auto plan = [](const char* from, const char* to, PartialTarget partial) {
        return plan_redistribute({8}, {2}, {0}, parse_placements(from), parse_placements(to), partial);
    };
    for (const char* from : {"R", "S(0)", "P(max)"}) {
        EXPECT_THAT(
            [&] { plan(from, "P", PartialTarget::refuse); },
            ThrowsMessage<InvalidArgument>(HasSubstr("Partial as a target is for internal use only")));
    }
    EXPECT_EQ(plan("R", "P", PartialTarget::allow)[0].kind, RedistributeStep::Kind::partition);
    const std::vector<std::vector<const char*>> never = {
        {"R", "P(max)"}, {"R", "P(avg)"}, {"S(0)", "P"}, {"P(sum)", "P(max)"}};
    for (const auto& pair : never) {
        EXPECT_THAT(
            [&] { plan(pair[0], pair[1], PartialTarget::allow); },
            ThrowsMessage<InvalidArgument>(HasSubstr("a Partial is made only of R, and only P(sum)")));
    }
}

TEST(RedistributePlan, GradientPlacements) {
    EXPECT_EQ(gradient_placements(
                  {Shard(1), Partial(), StridedShard(0, 2), Replicate(), Partial(comm::ReduceOp::max)}),
              (Placements{Shard(1), Replicate(), StridedShard(0, 2), Replicate(), Replicate()}));
}

std::int64_t bytes(const char* from, const char* to, const Shape& shape, int size, int rank) {
    const auto plan = plan_redistribute(shape, {size}, {rank}, parse_placements(from), parse_placements(to));
    return plan[0].bytes_received(size, rank, 4);
}

TEST(RedistributePlan, BytesReceived) {
    EXPECT_EQ(bytes("S(0)", "R", {10, 7}, 4, 0), 3 * 3 * 7 * 4);  // three padded slots of three rows
    EXPECT_EQ(bytes("S(0)", "R", {10, 7}, 4, 3), 3 * 3 * 7 * 4);  // whatever the own piece is
    EXPECT_EQ(bytes("P", "S(0)", {10, 7}, 4, 3), 3 * 3 * 7 * 4);
    EXPECT_EQ(bytes("P", "R", {8, 7}, 4, 0), 2 * 3 * 8 * 7 * 4 / 4);
    EXPECT_EQ(bytes("R", "S(0)", {10, 7}, 4, 0), 0);
    // All-to-all: the new piece less what was here. Rank 0: 10 rows of 2 columns, 3 rows of them its own.
    EXPECT_EQ(bytes("S(0)", "S(1)", {10, 7}, 4, 0), (10 - 3) * 2 * 4);
    EXPECT_EQ(bytes("S(0)", "S(1)", {10, 7}, 4, 3), (10 - 1) * 1 * 4);
    // [0, 4) of 8 becomes [0, 2) and [4, 6): two of four are new.
    EXPECT_EQ(bytes("S(0)", "SS(0, 2)", {8}, 2, 0), 2 * 4);
}

}  // namespace
}  // namespace tandem
