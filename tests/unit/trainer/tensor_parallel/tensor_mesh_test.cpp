// What fibers do not have, on threads: rings, bfloat16, GPUs that are emulated; and every option of a policy beside tp.
#include <gtest/gtest.h>

#include <mutex>

#include "common/comm/launch.h"
#include "tests/support/error_of.h"
#include "tests/unit/trainer/tensor_parallel/tensor_run.h"

namespace tandem::trainer::testing {
namespace {

constexpr double kTolerance = 1e-5;

// What rank 0 brings back of a run on threads; all ranks must see the same.
Step run_threads(const MeshSizes& sizes, const TensorRun& run) {
    std::mutex mutex;
    std::vector<Step> steps(static_cast<std::size_t>(sizes.ranks()));
    comm::run_threads(sizes.ranks(), [&](const std::shared_ptr<comm::Communicator>& world) {
        Step step = run_step(world, sizes, run);
        const std::lock_guard lock(mutex);
        steps[static_cast<std::size_t>(world->rank())] = std::move(step);
    });
    for (const Step& step : steps) {
        EXPECT_EQ(step.losses, steps[0].losses);
        EXPECT_EQ(step.grad_norm, steps[0].grad_norm);
        EXPECT_EQ(step.scores.logprobs, steps[0].scores.logprobs);
        EXPECT_EQ(step.state, steps[0].state);
    }
    return steps[0];
}

void expect_one_rank(const MeshSizes& sizes, const TensorRun& run) {
    const ::testing::ScopedTrace trace(__FILE__, __LINE__, describe(sizes));
    expect_same_step(run_threads(sizes, run), run_alone(run), kTolerance);
}

TEST(TensorMesh, ZigzagRings) {
    TensorRun run = tensor_run(qwen3_of_few_kv_heads(), 3);
    run.options.context = PolicyOptions::ContextMode::zigzag;
    run.options.max_tokens_per_rank = 40;
    for (const MeshSizes& sizes : std::vector<MeshSizes>{{1, 2, 0, 2}, {2, 2, 0, 2}, {1, 4, 0, 2}}) {
        for (const bool cut : {false, true}) {
            run.options.sequence_parallel = cut;
            expect_one_rank(sizes, run);
        }
    }
}

TEST(TensorMesh, EveryWayToShardTheRest) {
    TensorRun run = tensor_run(llama_with_biases(), 3);
    for (const std::vector<std::string>& axes : std::vector<std::vector<std::string>>{
             {"dp_shard"}, {"dp_shard", "cp"}, {"dp_replicate", "dp_shard"}, {"cp"}}) {
        run.options.shard_axes = axes;
        expect_one_rank({2, 2, 2, 2}, run);
    }
}

TEST(TensorMesh, GradientsThatAreReducedLater) {
    TensorRun run = tensor_run(qwen3_of_few_kv_heads(), 3);
    run.options.max_tokens_per_rank = 16;
    run.options.reduce_every_micro_batch = false;
    for (const MeshSizes& sizes : std::vector<MeshSizes>{{1, 1, 0, 2}, {2, 1, 0, 2}, {1, 1, 0, 8}})
        expect_one_rank(sizes, run);
    run.options.reshard_after_forward = 2;
    expect_one_rank({4, 1, 0, 2}, run);
    run.options.reshard_after_forward = false;
    expect_one_rank({2, 1, 0, 2}, run);
}

TEST(TensorMesh, OffloadedAndAsleep) {
    TensorRun run = tensor_run(qwen2_tied(), 3);
    run.options.offload = {true, true, ::testing::TempDir()};
    expect_one_rank({2, 1, 0, 2}, run);
    run.options.offload = {};
    run.options.deepest_sleep = PolicyOptions::Sleep::all;
    run.sleeps = true;
    expect_one_rank({1, 1, 0, 4}, run);
}

// Their error from float32 is at most twice that of one rank in bfloat16.
TEST(TensorMesh, Bfloat16) {
    TensorRun run = tensor_run(qwen3_of_few_kv_heads(), 1);
    const Step exact = run_alone(run);
    run.options.compute_dtype = DType::bfloat16;
    const Step one = run_alone(run);
    for (const MeshSizes& sizes :
         std::vector<MeshSizes>{{1, 1, 0, 2}, {2, 1, 0, 2}, {1, 2, 0, 2}, {1, 1, 0, 4}}) {
        for (const bool cut : {false, true}) {
            run.options.sequence_parallel = run.options.loss_parallel = cut;
            const Step found = run_threads(sizes, run);
            for (const auto& [name, gradient] : exact.gradients) {
                EXPECT_LE(relative_difference(found.gradients.at(name), gradient),
                          2 * relative_difference(one.gradients.at(name), gradient))
                    << name << " " << describe(sizes) << (cut ? " cut" : "");
            }
        }
    }
}

Values initial_weights(const MeshSizes& sizes, const model::ModelConfig& config) {
    Values values;
    std::mutex mutex;
    comm::run_threads(sizes.ranks(), [&](const std::shared_ptr<comm::Communicator>& world) {
        PolicyOptions options;
        options.device = device_of(world->rank());
        Policy policy(make_mesh(world, sizes), config, options);
        Values full = full_values(policy.parameters());
        const std::lock_guard lock(mutex);
        if (world->rank() == sizes.ranks() - 1) values = std::move(full);
    });
    return values;
}

TEST(TensorMesh, FreshWeightsAreThoseOfOneRank) {
    for (const model::ModelConfig& config : {llama_with_biases(), qwen2_tied(), qwen3_of_few_kv_heads()}) {
        const Values one = initial_weights({}, config);
        for (const MeshSizes& sizes :
             std::vector<MeshSizes>{{1, 1, 0, 2}, {1, 1, 0, 4}, {3, 1, 0, 2}, {2, 1, 2, 4}, {1, 2, 0, 2}})
            EXPECT_EQ(initial_weights(sizes, config), one) << describe(sizes);
    }
}

TEST(TensorMesh, DegreesThatDoNotFitAreRefusedOnEveryRank) {
    comm::run_threads(3, [](const std::shared_ptr<comm::Communicator>& world) {
        EXPECT_NE(
            test::error_of([&] {
                Policy(make_mesh(world, {1, 1, 0, 3}), llama_with_biases(), {});
            }).find("tensor parallelism 3 does not fit 4 query heads and 2 key and value heads; 1, 2, 4 do"),
            std::string::npos);
    });
}

}  // namespace
}  // namespace tandem::trainer::testing
