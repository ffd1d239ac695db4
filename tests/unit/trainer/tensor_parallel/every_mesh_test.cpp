// Every mesh of up to eight ranks is one rank: loss, scores, gradients, moments and weights of three kinds of models. The
// ranks are fibers of one thread.
#include <gtest/gtest.h>

#include "common/sharding/tensor_cut.h"
#include "tests/support/fiber_ranks.h"
#include "tests/unit/trainer/tensor_parallel/tensor_run.h"

namespace tandem::trainer::testing {
namespace {

constexpr double kTolerance = 1e-5;
constexpr int kMostRanks = 8;

void expect_every_mesh(const TensorRun& run, int fewest = 1) {
    const Step one = run_alone(run);
    for (int ranks = fewest; ranks <= kMostRanks; ++ranks) {
        for (const MeshSizes& sizes : meshes_of(ranks)) {
            if (tensor_degrees(run.config, sizes.tp).back() != sizes.tp) continue;
            const ::testing::ScopedTrace trace(__FILE__, __LINE__, describe(sizes));
            test::run_fibers(ranks, [&](const std::shared_ptr<comm::Communicator>& world) {
                const Step found = run_step(world, sizes, run);
                if (world->rank() == ranks - 1) expect_same_step(found, one, kTolerance);
            });
            if (::testing::Test::HasFailure()) return;
        }
    }
}

class EveryMesh : public ::testing::TestWithParam<int> {
  protected:
    void expect_of(const model::ModelConfig& config) {
        TensorRun run = tensor_run(config, GetParam());
        run.options.context = PolicyOptions::ContextMode::packed;  // fibers have no point-to-point
        for (const bool cut : {false, true}) {
            run.options.sequence_parallel = run.options.loss_parallel = cut;
            expect_every_mesh(run);
        }
    }
};

TEST_P(EveryMesh, LlamaWithBiases) {
    expect_of(llama_with_biases());
}
TEST_P(EveryMesh, Qwen2Tied) {
    expect_of(qwen2_tied());
}
TEST_P(EveryMesh, Qwen3OfFewKvHeads) {
    expect_of(qwen3_of_few_kv_heads());
}

// The values are whole on every rank of tp, and so is their gradient.
TEST(EveryMeshOf, AValueHead) {
    TensorRun run = tensor_run(llama_with_biases(), 3);
    run.options.context = PolicyOptions::ContextMode::packed;
    run.options.value_head = true;
    run.options.value_lr_factor = 3;
    run.loss.value_coef = 0.5f;
    for (const bool cut : {false, true}) {
        run.options.sequence_parallel = run.options.loss_parallel = cut;
        expect_every_mesh(run, 4);
    }
}

TEST(EveryMeshOf, WhatLayersComputeAgain) {
    TensorRun run = tensor_run(qwen3_of_few_kv_heads(), 1);
    run.options.context = PolicyOptions::ContextMode::packed;
    for (const Checkpointing checkpointing : {Checkpointing::selective, Checkpointing::full}) {
        run.options.checkpointing = checkpointing;
        expect_every_mesh(run, 8);
    }
}

INSTANTIATE_TEST_SUITE_P(MicroBatches, EveryMesh, ::testing::Values(1, 3));

}  // namespace
}  // namespace tandem::trainer::testing
