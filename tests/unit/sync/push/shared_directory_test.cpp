// A push into several servers: those that take the same tensors load one directory.
#include "engine_adapter/hf_directory/shared_directory.h"

#include <gmock/gmock.h>

#include <chrono>
#include <memory>

#include "tests/support/error_of.h"
#include "tests/unit/sync/push/push_fixture.h"

namespace tandem::sync {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;

TEST_F(Push, ServersOfTheSameTensorsLoadOneDirectory) {
    VllmStandIn one({.model = model("a", 1)});
    VllmStandIn two({.model = model("b", 2), .delay = std::chrono::milliseconds(20)});
    VllmStandIn narrow({.model = model("c", 3), .dtype = "bfloat16"});
    VllmStandIn other({.model = model("d", 4, DType::float32, 44)});
    share_ = std::make_shared<engine::StagingShare>();
    const std::string next = model("next", 9);
    const auto outcomes = push(next, {two.url(), one.url(), narrow.url(), other.url()});
    for (std::size_t i = 0; i < 3; ++i) EXPECT_TRUE(outcomes[i].whole) << outcomes[i].error;
    EXPECT_FALSE(outcomes[3].whole);
    EXPECT_EQ(one.weights(), bytes_of_directory(next));
    EXPECT_EQ(two.weights(), bytes_of_directory(next));
    EXPECT_EQ(narrow.weights(), bytes_of_directory(model("next_narrow", 9, DType::bfloat16)));
    EXPECT_EQ(one.directories(), two.directories());
    EXPECT_NE(one.directories(), narrow.directories());
    share_.reset();
    EXPECT_THAT(staged(), IsEmpty());
}

TEST_F(Push, WhoFillsASharedDirectoryAndGivesUpIsReplaced) {
    const std::string old = model("a", 1);
    engine::StagingShare share;
    const std::vector<engine::TensorInfo> tensors{{"w", {10}, DType::float32, {}}};
    auto first = share.claim(staging(), old, tensors, 1);
    auto waits = share.claim(staging(), old, tensors, 1);
    EXPECT_TRUE(first.fill);
    EXPECT_FALSE(waits.fill);
    EXPECT_EQ(first.directory, waits.directory);
    EXPECT_THAT(test::error_of([&] { waits.directory->wait_whole({}, "server", Deadline::after_ms(20)); }),
                AllOf(HasSubstr("server"), HasSubstr("still filling")));
    first.directory->give_up();
    EXPECT_THAT(test::error_of([&] { waits.directory->wait_whole({}, "server", Deadline::after_ms(20)); }),
                HasSubstr("given up"));
    auto second = share.claim(staging(), old, tensors, 1);
    EXPECT_TRUE(second.fill);
    second.directory->finish({{0, {ops::Checksum{1, 2}}}});
    EXPECT_THAT(test::error_of([&] { second.directory->wait_whole({}, "server", Deadline::after_ms(20)); }),
                HasSubstr("other weights"));
    second.directory->wait_whole({{0, {ops::Checksum{1, 2}}}}, "server", Deadline::after_ms(20));
}

}  // namespace
}  // namespace tandem::sync
