// Two runs with one seed are bit-identical after 20 steps; fresh weights do not depend on the mesh; loading
// works.
#include <gtest/gtest.h>

#include <mutex>
#include <numeric>

#include "common/comm/launch.h"
#include "common/error.h"
#include "tests/unit/trainer/policy/policy_run.h"

namespace tandem::trainer::testing {
namespace {

using Values = std::map<std::string, std::vector<float>>;

// Runs body(policy) on every rank of a mesh; returns rank 0's full parameters afterwards.
Values after(MeshSizes sizes, const PolicyOptions& options, const std::function<void(Policy&)>& body) {
    Values result;
    std::mutex mutex;
    comm::run_threads(sizes.dp * sizes.cp, [&](std::shared_ptr<comm::Communicator> world) {
        const bool first = world->rank() == 0;
        Policy policy(DeviceMesh::create(std::move(world), {sizes.dp, sizes.cp}, {"dp", "cp"}), tiny_config(),
                      options);
        body(policy);
        const Values values = full_values(policy.parameters());
        const std::lock_guard lock(mutex);
        if (first) result = values;
    });
    return result;
}

void train(Policy& policy) {
    for (unsigned step = 0; step < 20; ++step) {
        policy.accumulate(random_samples({9, 4, 12, 7, 3}, 13, step), supervised_loss());
        policy.apply(1e-2);
    }
}

TEST(Repeat, TwentyStepsAreBitIdentical) {
    PolicyOptions options;
    options.max_tokens_per_rank = 12;
    for (const DType dtype : {DType::float32, DType::bfloat16}) {
        options.compute_dtype = dtype;
        const Values first = after({2, 2}, options, train);
        const Values second = after({2, 2}, options, train);
        EXPECT_EQ(first, second);
        EXPECT_NE(first, after({2, 2}, options, [](Policy&) {}));
    }
}

TEST(Repeat, FreshWeightsDoNotDependOnTheMesh) {
    const auto nothing = [](Policy&) {};
    const Values one = after({1, 1}, {}, nothing);
    EXPECT_EQ(after({4, 1}, {}, nothing), one);
    EXPECT_EQ(after({2, 2}, {}, nothing), one);
    PolicyOptions over_dp;
    over_dp.shard_over_cp = false;
    EXPECT_EQ(after({2, 2}, over_dp, nothing), one);
    PolicyOptions other;
    other.seed = 1;
    EXPECT_NE(after({1, 1}, other, nothing), one);
}

TEST(Repeat, LossFallsAndResetForgetsTheMoments) {
    const auto samples = random_samples({9, 4, 12}, 13, 3);
    after({1, 1}, {}, [&](Policy& policy) {
        const double before = policy.accumulate(samples, supervised_loss()).loss;
        for (int step = 0; step < 20; ++step) {
            policy.apply(1e-2);
            policy.accumulate(samples, supervised_loss());
        }
        policy.apply(1e-2);
        EXPECT_LT(policy.accumulate(samples, supervised_loss()).loss, before - 0.3);
        policy.apply(0.0);
        // After a reset the first step moves every weight with a gradient by lr, whatever came before.
        policy.reset_optimizer();
        const Values kept = full_values(policy.parameters());
        policy.accumulate(samples, supervised_loss());
        policy.apply(1e-4);
        const Values moved = full_values(policy.parameters());
        EXPECT_NEAR(std::abs(moved.at("model.norm.weight")[0] - kept.at("model.norm.weight")[0]), 1e-4, 1e-6);
    });
}

TEST(Repeat, LoadedParametersLandInTheirRows) {
    std::vector<float> table(13 * 10);
    std::iota(table.begin(), table.end(), 0.5f);
    const Values values = after({2, 2}, {}, [&](Policy& policy) {
        policy.load_parameter("model.embed_tokens.weight", Tensor::from<float>(table, {13, 10}));
    });
    EXPECT_EQ(values.at("model.embed_tokens.weight"), table);
}

// Passes in bfloat16 read a copy of the parameters.
TEST(Repeat, ParametersThatWereWrittenInSilenceAreNotPassedOver) {
    const auto samples = random_samples({9, 4}, 13, 3);
    PolicyOptions options;
    options.compute_dtype = DType::bfloat16;
    for (const MeshSizes sizes : {MeshSizes{1, 1}, MeshSizes{2, 1}}) {
        after(sizes, options, [&](Policy& policy) {
            const auto before = policy.logprobs(samples);
            for (float& value : policy.parameters().front().second.local().values<float>()) value += 0.5f;
            EXPECT_THROW(policy.logprobs(samples), InvalidArgument);
            policy.weights_written();
            EXPECT_NE(policy.logprobs(samples), before);
        });
    }
}

TEST(Repeat, GradientsSayHowTheyLie) {
    for (const bool over_cp : {true, false}) {
        PolicyOptions options;
        options.shard_over_cp = over_cp;
        after({2, 2}, options, [&](Policy& policy) {
            const DTensor gradient = policy.gradients().front().second;
            const Placements expected = over_cp ? Placements{Shard(0)} : Placements{Shard(0), Replicate()};
            EXPECT_EQ(gradient.placements(), expected);
            EXPECT_EQ(gradient.mesh().names(),
                      over_cp ? std::vector<std::string>{"dp_cp"} : (std::vector<std::string>{"dp", "cp"}));
        });
    }
}

}  // namespace
}  // namespace tandem::trainer::testing
