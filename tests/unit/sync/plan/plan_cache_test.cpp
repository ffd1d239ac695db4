#include "sync/plan/plan_cache.h"

#include <gtest/gtest.h>

#include "common/error.h"

namespace tandem::sync {
namespace {

ReshardPlan plan_of(std::int64_t rows) {
    SourceLayout source;
    source.groups = {{{0}, {1}, {Replicate()}}};
    source.tensors = {{"w", {rows, 4}, DType::float32, {0}}};
    return ReshardPlan::make(source, {{{"w", {rows, 4}, DType::float32, {}}}});
}

TEST(PlanCache, PlansOncePerPairOfLayoutsAndForgetsTheOneUnusedLongest) {
    PlanCache cache(2);
    int made = 0;
    const auto rows_of = [&](const std::string& layouts, std::int64_t rows) {
        const ReshardPlan plan = cache.get(layouts, [&] {
            ++made;
            return plan_of(rows);
        });
        return plan.source().tensors[0].shape[0];
    };
    EXPECT_EQ(rows_of("a", 1), 1);
    EXPECT_EQ(rows_of("b", 2), 2);
    EXPECT_EQ(rows_of("a", 99), 1);  // kept
    EXPECT_EQ(made, 2);
    EXPECT_EQ(rows_of("c", 3), 3);  // "b" goes: "a" was used after it
    EXPECT_EQ(cache.size(), 2u);
    EXPECT_EQ(rows_of("a", 99), 1);
    EXPECT_EQ(rows_of("b", 4), 4);
    EXPECT_EQ(made, 4);
}

TEST(PlanCache, KeepsNothingOfAPlanThatFails) {
    PlanCache cache;
    EXPECT_THROW(cache.get("bad", []() -> ReshardPlan { throw InvalidArgument("no"); }), InvalidArgument);
    EXPECT_EQ(cache.size(), 0u);
    EXPECT_EQ(cache.get("bad", [] { return plan_of(5); }).source().tensors[0].shape[0], 5);
}

}  // namespace
}  // namespace tandem::sync
