// Input that a reshard plan refuses, naming the tensor that is wrong.
#include <gmock/gmock.h>

#include "common/error.h"
#include "sync/plan/reshard_check.h"
#include "tests/unit/sync/plan/reshard_model.h"

namespace tandem::sync {
namespace {

using engine::Part;
using engine::TensorInfo;
using testing::HasSubstr;

class ReshardErrors : public testing::Test {
  protected:
    ReshardErrors()
        : source_(on_mesh({{"w", {8, 4}, model::Cut::replicate, 0}}, {2}, {Shard(0)})),
          engine_{{TensorInfo{"e", {8, 4}, DType::float32, {{"w", {0, 0}, {8, 4}, 0, {4, 1}}}}}} {}

    TensorInfo& tensor() { return engine_[0][0]; }
    Part& part() { return tensor().parts[0]; }
    void refused(const std::string& why) {
        try {
            ReshardPlan::make(source_, engine_);
            ADD_FAILURE() << "accepted; should say " << why;
        } catch (const InvalidArgument& error) {
            EXPECT_THAT(error.what(), HasSubstr(why));
            EXPECT_TRUE(std::string(error.what()).find("'e'") != std::string::npos ||
                        std::string(error.what()).find("'w'") != std::string::npos)
                << error.what();
        }
    }

    SourceLayout source_;
    EngineLayout engine_;
};

TEST_F(ReshardErrors, NoneAsItStands) {
    EXPECT_EQ(ReshardPlan::make(source_, engine_).move_count(), 2u);
}
TEST_F(ReshardErrors, UnknownTensor) {
    part().name = "x";
    refused("the trainer has no tensor 'x'");
    tensor().parts.clear();
    refused("the trainer has no tensor 'e'");
}
TEST_F(ReshardErrors, WholeTensorOfAnotherShape) {
    engine_ = {{TensorInfo{"w", {4, 8}, DType::float32, {}}}};
    refused("'w' [4, 8]: the trainer's is [8, 4]");
}
TEST_F(ReshardErrors, BoxLeavesTheTensor) {
    part().start = {1, 0};
    refused("leaves 'w' [8, 4]");
    part().start = {-1, 0};
    refused("leaves 'w' [8, 4]");
    part().start = {0};
    refused("leaves 'w' [8, 4]");
}
TEST_F(ReshardErrors, PartLeavesTheEnginesTensor) {
    part().offset = 1;
    refused("part 'w' reaches elements 1 to 32 of 32");
    part().offset = 0;
    part().stride = {4, 0};
    refused("has stride [4, 0]");
    part().stride = {4};
    refused("2 dims and 1 strides");
}
TEST_F(ReshardErrors, GapBetweenRuns) {
    part().size = {3, 4};
    tensor().parts.push_back({"w", {4, 0}, {4, 4}, 16, {4, 1}});
    refused("no part covers its elements [12, 16)");
    part().size = {4, 4};
    tensor().parts[1].size = {3, 4};
    refused("no part covers its elements [28, 32)");
}
TEST_F(ReshardErrors, OverlappingRuns) {
    part().size = {5, 4};
    tensor().parts.push_back({"w", {4, 0}, {4, 4}, 16, {4, 1}});
    refused("part 'w' covers element 16 again");
}
TEST_F(ReshardErrors, GapBetweenColumns) {
    part().size = {8, 2};
    tensor().parts.push_back({"w", {0, 2}, {8, 1}, 3, {4, 1}});
    refused("no part covers its elements [2, 3)");
}
TEST_F(ReshardErrors, OverlappingColumns) {
    part().size = {8, 2};
    tensor().parts.push_back({"w", {0, 1}, {8, 3}, 1, {4, 1}});
    refused("part 'w' covers element 1 again");
}
TEST_F(ReshardErrors, PartThatCoversItself) {
    part().stride = {2, 1};
    refused("part 'w' covers element 2 again");
}
TEST_F(ReshardErrors, PartialSum) {
    source_.groups[0].placements = {Partial()};
    refused("tensor 'w' is a partial sum ([P(sum)])");
}
TEST_F(ReshardErrors, UnknownCast) {
    tensor().dtype = DType::int32;
    refused("does not cast float32 to int32");
}
TEST_F(ReshardErrors, NobodyHoldsIt) {
    source_.tensors[0].groups.clear();
    refused("no rank holds tensor 'w'");
}
TEST_F(ReshardErrors, GroupsThatCannotBe) {
    source_.tensors[0].groups = {7};
    refused("tensor 'w' lies on group 7 of 2");
    source_.tensors[0].groups = {0, 0};
    refused("tensor 'w': rank 0 is twice in its groups");
    source_.tensors[0].groups = {0};
    source_.groups[0].ranks = {0, 5};
    refused("rank 5 of 2");
    source_.groups[0].ranks = {0};
    refused("1 ranks on a mesh for 2");
    source_.groups[0].ranks = {0, 1};
    source_.groups[0].placements = {Shard(2)};
    refused("dim must be in");
}
TEST_F(ReshardErrors, TwoTensorsOfOneName) {
    source_.tensors.push_back(source_.tensors[0]);
    refused("two tensors 'w'");
}
TEST_F(ReshardErrors, RanksThatDoNotExist) {
    const auto plan = ReshardPlan::make(source_, engine_);
    EXPECT_THROW(plan.moves_to(1), InvalidArgument);
    EXPECT_THROW(plan.moves_from(-1), InvalidArgument);
}

TEST(ReshardCasts, EqualAndFloats) {
    EXPECT_TRUE(copy_casts(DType::float32, DType::bfloat16));
    EXPECT_TRUE(copy_casts(DType::bfloat16, DType::float32));
    for (const DType other : {DType::float32, DType::bfloat16}) {
        EXPECT_TRUE(copy_casts(DType::float16, other));
        EXPECT_TRUE(copy_casts(other, DType::float16));
    }
    EXPECT_TRUE(copy_casts(DType::int64, DType::int64));
    EXPECT_FALSE(copy_casts(DType::int64, DType::int32));
    EXPECT_FALSE(copy_casts(DType::uint8, DType::bfloat16));
}

}  // namespace
}  // namespace tandem::sync
