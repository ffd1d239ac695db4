// What is refused, and what is said then. The lists themselves: golden_test.cpp.
#include "trainer/pipeline/schedule.h"

#include <gmock/gmock.h>

#include "common/error.h"

namespace tandem::pipeline {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

void expect_no_schedule(const std::string& name, int ranks, int stages, int microbatches,
                        const std::string& part) {
    EXPECT_THAT([&] { make_schedule(name, ranks, stages, microbatches); },
                ThrowsMessage<BadInput>(HasSubstr(part)));
}

TEST(Schedules, RefuseWhatPyTorchRefuses) {
    expect_no_schedule("1F1B", 4, 1, 3, "1F1B with pp 4 needs at least 4 micro-batches, not 3");
    expect_no_schedule("DualPipeV", 4, 2, 7, "DualPipeV with pp 4 needs at least 8 micro-batches, not 7");
    expect_no_schedule("GPipe", 4, 2, 8,
                       "GPipe has exactly 1 stage a rank, not 2; Interleaved1F1B, LoopedBFS and");
    expect_no_schedule("1F1B", 4, 3, 8, "1F1B has exactly 1 stage a rank, not 3");
    expect_no_schedule("ZBVZeroBubble", 4, 1, 8, "ZBVZeroBubble has exactly 2 stages a rank, not 1");
    expect_no_schedule("dualpipev", 4, 3, 8, "DualPipeV has exactly 2 stages a rank, not 3");
    expect_no_schedule("Interleaved1F1B", 6, 2, 15,
                       "with pp 6 runs 15 micro-batches in 2 rounds, by which they cannot be "
                       "divided; 14 and 16 are admitted");
    expect_no_schedule("InterleavedZeroBubble", 2, 2, 5,
                       "in 2 rounds, by which they cannot be divided; 4 and 6 are admitted");
    expect_no_schedule("OneFOneB", 4, 1, 8,
                       "there is no schedule OneFOneB; known: GPipe, 1F1B, Interleaved1F1B, LoopedBFS, "
                       "InterleavedZeroBubble, ZBVZeroBubble, DualPipeV");
    expect_no_schedule("", 4, 1, 8, "there is no schedule ; known: GPipe");
    expect_no_schedule("\x1b[2J", 4, 1, 8, "there is no schedule \\x1b[2J");
}

TEST(Schedules, RefuseSizes) {
    expect_no_schedule("GPipe", 0, 1, 8, "pp(0) must be at least 1");
    expect_no_schedule("GPipe", 4, -1, 8, "stages(-1) must be at least 1");
    expect_no_schedule("GPipe", 4, 1, 0, "microbatches(0) must be at least 1");
    expect_no_schedule("GPipe", 1 << 20, 1, 2,
                       "a schedule has at most 1048576 forwards; choose fewer micro-batches");
    expect_no_schedule("LoopedBFS", 1 << 30, 1 << 30, 1 << 30, "at most 1048576 forwards");
}

TEST(Schedules, AdmitWhatPyTorchAdmits) {
    EXPECT_NO_THROW(make_schedule("Interleaved1F1B", 6, 2, 11));  // one round
    EXPECT_NO_THROW(make_schedule("Interleaved1F1B", 6, 2, 16));  // two of eight
    EXPECT_NO_THROW(make_schedule("Interleaved1F1B", 4, 2, 1));
    EXPECT_NO_THROW(make_schedule("ZBVZeroBubble", 8, 2, 1));
    EXPECT_NO_THROW(make_schedule("LoopedBFS", 3, 1, 1));
    EXPECT_NO_THROW(make_schedule("GPipe", 1, 1, 1));
    EXPECT_EQ(schedule_name("interleaved1f1b"), "Interleaved1F1B");
}

TEST(Schedules, PlaceStagesInALoopOrAV) {
    EXPECT_THAT(make_schedule("LoopedBFS", 2, 3, 1).rank_of_stage, ElementsAre(0, 1, 0, 1, 0, 1));
    EXPECT_THAT(make_schedule("ZBVZeroBubble", 3, 2, 1).rank_of_stage, ElementsAre(0, 1, 2, 2, 1, 0));
    EXPECT_THAT(make_schedule("DualPipeV", 2, 2, 4).rank_of_stage, ElementsAre(0, 1, 1, 0));
}

}  // namespace
}  // namespace tandem::pipeline
