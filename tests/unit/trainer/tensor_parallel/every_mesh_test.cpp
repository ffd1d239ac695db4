// Every mesh of up to eight ranks is one rank: loss, scores, gradients, moments and weights of three kinds of models. The
// ranks are fibers of one thread.
#include <gtest/gtest.h>

#include <cstdlib>
#include <initializer_list>
#include <random>

#include "common/sharding/tensor_cut.h"
#include "tests/support/fiber_ranks.h"
#include "tests/unit/trainer/tensor_parallel/tensor_run.h"

namespace tandem::trainer::testing {
namespace {

constexpr double kTolerance = 1e-5;
constexpr int kMostRanks = 8;

void expect_mesh(const MeshSizes& sizes, const TensorRun& run, const Step& one,
                 double tolerance = kTolerance) {
    test::run_fibers(sizes.ranks(), static_cast<unsigned>(sizes.ranks()),
                     [&](const std::shared_ptr<comm::Communicator>& world) {
                         const Step found = run_step(world, sizes, run);
                         if (world->rank() == sizes.ranks() - 1) expect_same_step(found, one, tolerance);
                     });
}

// dp_replicate's ranks hold the same shards, where the run says nothing else: all axes would make them as those of dp_shard.
TensorRun with_replicas(TensorRun run, const MeshSizes& sizes) {
    if (sizes.dp_replicate < 2 || !run.options.shard_axes.empty()) return run;
    run.options.shard_axes = {"dp_shard"};
    if (run.options.shard_over_cp) run.options.shard_axes.push_back("cp");
    return run;
}

void expect_every_mesh(const TensorRun& run, int fewest = 1) {
    const Step one = run_alone(run);
    for (int ranks = fewest; ranks <= kMostRanks; ++ranks) {
        for (const MeshSizes& sizes : meshes_of(ranks)) {
            if (tensor_degrees(run.config, sizes.tp).back() != sizes.tp) continue;
            const ::testing::ScopedTrace trace(__FILE__, __LINE__, describe(sizes));
            expect_mesh(sizes, with_replicas(run, sizes), one);
            if (::testing::Test::HasFailure()) return;
        }
    }
}

class EveryMesh : public ::testing::TestWithParam<int> {
  protected:
    void expect_of(const model::ModelConfig& config) {
        TensorRun run = tensor_run(config, GetParam());
        run.options.max_tokens_per_rank = 40;  // a ring pads every sequence
        for (const bool cut : {false, true}) {
            run.options.sequence_parallel = run.options.loss_parallel = cut;
            run.options.context =
                cut ? PolicyOptions::ContextMode::zigzag : PolicyOptions::ContextMode::packed;
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

// A pass writes its gradients where others lie: NaN, which would stay wherever it added to them or left them, as it leaves
// the value head's, which this loss does not train.
TEST(EveryMeshOf, GradientsWrittenOverNan) {
    for (const model::ModelConfig& config : {llama_with_biases(), qwen2_tied(), qwen3_of_few_kv_heads()}) {
        TensorRun run = tensor_run(config, 3);
        run.after_nan = true;
        run.options.value_head = true;
        run.options.max_tokens_per_rank = 40;
        for (const bool replicas : {false, true}) {
            run.options.shard_axes =
                replicas ? std::vector<std::string>{"dp_shard"} : std::vector<std::string>();
            run.options.sequence_parallel = run.options.reduce_every_micro_batch = replicas;
            expect_every_mesh(run);
        }
    }
}

// Models and options that nobody chose. Where the terms of a gradient nearly cancel, as one in hundreds of these do, float32's
// rounding of the forward shows: tp changes it, dp and cp do not.
constexpr double kDrawnTolerance = 3e-5;

TensorRun drawn_run(std::mt19937& random) {
    const auto one_of = [&](std::initializer_list<std::int64_t> list) {
        return *(list.begin() + random() % list.size());
    };
    const auto coin = [&] { return random() % 2 == 0; };
    model::ModelConfig config = llama_with_biases();
    config.num_key_value_heads = one_of({1, 2, 3, 4});
    config.num_attention_heads = config.num_key_value_heads * one_of({1, 2, 3, 4});
    config.head_dim = one_of({2, 4, 6});
    config.hidden_size = one_of({3, 8, 10, 17});
    config.intermediate_size = one_of({1, 5, 9, 16});
    config.vocab_size = one_of({3, 8, 13, 29});
    config.num_hidden_layers = one_of({1, 2, 3});
    config.tie_word_embeddings = coin();
    config.qk_norm = coin();
    config.qkv_bias = !config.qk_norm && coin();
    config.o_bias = config.mlp_bias = config.qkv_bias && coin();
    TensorRun run = tensor_run(config, static_cast<int>(one_of({1, 2, 3})));
    PolicyOptions& options = run.options;
    options.context = coin() ? PolicyOptions::ContextMode::packed : PolicyOptions::ContextMode::zigzag;
    options.max_tokens_per_rank = 40;
    options.sequence_parallel = coin();
    options.loss_parallel = coin();
    options.shard_over_cp = coin();
    options.reshard_after_forward = coin();
    options.reduce_every_micro_batch = coin();
    options.logits_chunk_rows = one_of({2, 7, 1024});
    options.checkpointing = static_cast<Checkpointing>(one_of({0, 1, 2}));
    options.value_head = coin();
    options.clip_grad_norm = coin() ? 0.1f : 0.0f;
    run.loss.value_coef = options.value_head ? 0.5f : 0.0f;
    run.loss.entropy_coef = coin() ? 0.05f : 0.0f;
    run.loss.temperature = coin() ? 0.7f : 1.0f;
    return run;
}

TEST(EveryMeshOf, DrawnModels) {
    std::mt19937 random(5);
    const char* const wanted = std::getenv("TANDEM_TEST_DRAWS");
    for (int draw = 0, draws = wanted == nullptr ? 60 : std::atoi(wanted); draw < draws; ++draw) {
        const TensorRun run = drawn_run(random);
        const std::vector<MeshSizes> meshes = meshes_of(2 + static_cast<int>(random() % (kMostRanks - 1)));
        const MeshSizes sizes = meshes[random() % meshes.size()];
        if (tensor_degrees(run.config, sizes.tp).back() != sizes.tp) continue;
        const ::testing::ScopedTrace trace(__FILE__, __LINE__,
                                           "draw " + std::to_string(draw) + ", " + describe(sizes));
        expect_mesh(sizes, with_replicas(run, sizes), run_alone(run), kDrawnTolerance);
        if (::testing::Test::HasFailure()) return;
    }
}

INSTANTIATE_TEST_SUITE_P(MicroBatches, EveryMesh, ::testing::Values(1, 3));

}  // namespace
}  // namespace tandem::trainer::testing
