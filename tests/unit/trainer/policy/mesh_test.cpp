// Every mesh gives the loss and the gradient of every parameter that one rank gives: packed and zigzag, both
// ways to shard, tied and untied, uneven and empty shards, sequences across rank borders, padding.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "common/comm/launch.h"
#include "common/device/memory.h"

#include "tests/support/grpo_loss.h"
#include "tests/unit/trainer/policy/policy_run.h"

namespace tandem::trainer::testing {
namespace {

constexpr double kTolerance = 1e-5;
using Mode = PolicyOptions::ContextMode;

PolicyOptions base_options() {
    PolicyOptions options;
    options.init_std = 0.2f;
    options.seed = 5;
    options.max_tokens_per_rank = 24;
    return options;
}

void expect_same(const Outcome& found, const Outcome& expected, double tolerance) {
    EXPECT_NEAR(found.stats.loss, expected.stats.loss, tolerance * std::abs(expected.stats.loss) + 1e-7);
    EXPECT_EQ(found.stats.target_tokens, expected.stats.target_tokens);
    EXPECT_EQ(found.stats.tokens, expected.stats.tokens);
    EXPECT_NEAR(found.stats.grad_norm, expected.stats.grad_norm, tolerance * expected.stats.grad_norm);
    EXPECT_NEAR(found.stats.clip_fraction, expected.stats.clip_fraction, 1e-9);
    EXPECT_NEAR(found.stats.kl, expected.stats.kl, 1e-6);
    ASSERT_EQ(found.gradients.size(), expected.gradients.size());
    for (const auto& [name, gradient] : expected.gradients) {
        EXPECT_LE(relative_difference(found.gradients.at(name), gradient), tolerance) << name;
    }
    for (std::size_t s = 0; s < expected.logprobs.size(); ++s) {
        EXPECT_LE(relative_difference(found.logprobs[s], expected.logprobs[s]), tolerance) << "sample " << s;
    }
}

std::string describe(const MeshSizes& sizes, const PolicyOptions& options) {
    return "dp " + std::to_string(sizes.dp) + " cp " + std::to_string(sizes.cp) +
           (options.shard_over_cp ? " over dp_cp" : " over dp");
}

void expect_all_meshes_agree(const model::ModelConfig& config, PolicyOptions options,
                             const std::vector<Sample>& samples,
                             const std::vector<MeshSizes>& meshes = {{2, 1}, {1, 2}, {2, 2}, {4, 1}}) {
    const LossOptions loss = grpo_loss(0.2f, 0.2f);
    const std::int64_t capacity = options.max_tokens_per_rank;
    options.max_tokens_per_rank = 1000;
    const Outcome one = run_mesh({1, 1}, config, options, samples, loss);
    ASSERT_GT(one.stats.grad_norm, 1e-3);
    options.max_tokens_per_rank = capacity;
    for (const MeshSizes& sizes : meshes) {
        for (const bool over_cp : {true, false}) {
            if (!over_cp && sizes.cp == 1) continue;
            options.shard_over_cp = over_cp;
            const ::testing::ScopedTrace trace(__FILE__, __LINE__, describe(sizes, options));
            expect_same(run_mesh(sizes, config, options, samples, loss), one, kTolerance);
        }
    }
}

// What a token's log-probability is does not depend on who computes it next to what: bit-equality, which lets
// the engine agree with any mesh. (The zigzag ring merges blocks and only comes close.)
TEST(Mesh, PackedLogProbsAreBitEqual) {
    const auto config = tiny_config();
    const auto samples = random_samples({11, 3, 1, 9, 6, 14, 2, 5}, config.vocab_size, 1);
    PolicyOptions options = base_options();
    options.context = Mode::packed;
    for (const DType dtype : {DType::float32, DType::bfloat16}) {
        options.compute_dtype = dtype;
        const Outcome one = run_mesh({1, 1}, config, options, samples, supervised_loss());
        for (const MeshSizes& sizes : std::vector<MeshSizes>{{2, 1}, {1, 2}, {2, 2}, {4, 1}}) {
            const Outcome found = run_mesh(sizes, config, options, samples, supervised_loss());
            EXPECT_EQ(found.logprobs, one.logprobs) << describe(sizes, options);
        }
    }
}

// Hidden 10 over 4 ranks: 3, 3, 3, 1. Vocabulary 13: 4, 4, 4, 1. q_norm of 6: 2, 2, 2, 0.
TEST(Mesh, PackedShortSequences) {
    const auto config = tiny_config();
    expect_all_meshes_agree(config, base_options(),
                            random_samples({11, 3, 1, 9, 6, 14, 2, 5}, config.vocab_size, 1));
}

TEST(Mesh, ZigzagLongSequences) {
    const auto config = tiny_config();
    PolicyOptions options = base_options();
    options.context = Mode::zigzag;
    options.max_tokens_per_rank = 40;
    expect_all_meshes_agree(config, options, random_samples({37, 21, 40}, config.vocab_size, 2));
}

TEST(Mesh, ZigzagOfSeveralSequencesAPack) {
    const auto config = tiny_config();
    PolicyOptions options = base_options();
    options.context = Mode::zigzag;
    expect_all_meshes_agree(config, options, random_samples({7, 13, 5, 1, 3, 9}, config.vocab_size, 3),
                            {{1, 2}, {2, 2}});
}

TEST(Mesh, UntiedWithoutQkNorm) {
    auto config = tiny_config();
    config.tie_word_embeddings = false;
    config.qk_norm = false;
    config.num_key_value_heads = 4;
    expect_all_meshes_agree(config, base_options(), random_samples({11, 3, 17, 9, 6}, config.vocab_size, 4));
}

TEST(Mesh, BiasesOnEveryProjection) {
    auto config = tiny_config();
    config.qk_norm = false;
    config.qkv_bias = config.o_bias = config.mlp_bias = true;
    config.rope_scaling.type = model::RopeScaling::Type::yarn;
    config.rope_scaling.factor = 4;
    config.rope_scaling.original_max_position_embeddings = 8;
    expect_all_meshes_agree(config, base_options(), random_samples({11, 3, 17, 9, 6}, config.vocab_size, 8));
}

TEST(Mesh, FewerSamplesThanRanksRunEmptyPacks) {
    const auto config = tiny_config();
    expect_all_meshes_agree(config, base_options(), random_samples({8}, config.vocab_size, 5));
}

TEST(Mesh, RowsFewerThanRanksLeaveEmptyShards) {
    auto config = tiny_config();
    config.vocab_size = 5;  // over 4 ranks: 2, 2, 1, 0
    config.hidden_size = 3;
    config.intermediate_size = 2;
    config.num_attention_heads = config.num_key_value_heads = 1;
    config.head_dim = 2;
    expect_all_meshes_agree(config, base_options(), random_samples({9, 12, 4}, config.vocab_size, 6),
                            {{4, 1}, {2, 2}});
}

TEST(Mesh, KeepingParametersAfterForwardChangesNothing) {
    const auto config = tiny_config();
    PolicyOptions options = base_options();
    options.reshard_after_forward = false;
    expect_all_meshes_agree(config, options, random_samples({11, 3, 9, 6}, config.vocab_size, 7),
                            {{2, 1}, {2, 2}});
}

// Large enough groups for the communication stream to be a thread of its own.
TEST(Mesh, OverlappedCommunication) {
    auto config = tiny_config();
    config.hidden_size = 150;
    config.intermediate_size = 601;
    config.num_hidden_layers = 3;
    PolicyOptions options = base_options();
    options.init_std = 0.05f;
    expect_all_meshes_agree(config, options, random_samples({11, 3, 9, 17, 21}, config.vocab_size, 8),
                            {{2, 1}, {2, 2}});
}

// Beside the root group no more than the layer that runs and the one that is fetched ahead are whole at a
// time.
TEST(Mesh, UnshardedMemoryIsTwoLayers) {
    auto config = tiny_config();
    config.hidden_size = 150;
    config.intermediate_size = 601;
    config.num_hidden_layers = 6;
    const auto samples = random_samples({11, 3, 9}, config.vocab_size, 8);
    const MemoryStats before = memory_stats("unsharded");
    reset_memory_peaks();
    run_mesh({2, 1}, config, base_options(), samples, supervised_loss());
    const auto peak = static_cast<std::int64_t>(memory_stats("unsharded").peak_bytes - before.live_bytes);
    const std::int64_t root = (config.vocab_size + 1) * config.hidden_size;
    const std::int64_t layer = (config.parameter_count() - root) / config.num_hidden_layers;
    EXPECT_GE(peak, 2 * 4 * (root + layer));
    EXPECT_LE(peak, 2 * 4 * (root + 2 * layer) * 102 / 100);  // padding and alignment
}

// bfloat16: no mesh may be further from the float32 run than twice the one-rank bfloat16 run is.
TEST(Mesh, Bfloat16StaysWithinTwiceTheOneRankError) {
    const auto config = tiny_config();
    const auto samples = random_samples({11, 3, 9, 6, 14, 18, 5}, config.vocab_size, 9);
    const LossOptions loss = supervised_loss();
    PolicyOptions options = base_options();
    const Outcome exact = run_mesh({1, 1}, config, options, samples, loss);
    options.compute_dtype = DType::bfloat16;
    const Outcome one = run_mesh({1, 1}, config, options, samples, loss);
    for (const MeshSizes& sizes : std::vector<MeshSizes>{{2, 1}, {1, 2}, {2, 2}, {4, 1}}) {
        for (const Mode mode : {Mode::packed, Mode::zigzag}) {
            options.context = mode;
            const Outcome found = run_mesh(sizes, config, options, samples, loss);
            for (const auto& [name, gradient] : exact.gradients) {
                EXPECT_LE(relative_difference(found.gradients.at(name), gradient),
                          2 * relative_difference(one.gradients.at(name), gradient))
                    << name << " " << describe(sizes, options);
            }
        }
    }
}

// Whoever writes weights, the next pass reads them: its scores are those of a policy that got the same ones at its start.
TEST(Mesh, PassesReadTheWeightsThatWereWritten) {
    const auto samples = random_samples({9, 4, 12, 7, 3}, tiny_config().vocab_size, 1);
    const auto expect_as_fresh = [&](Policy& policy, const std::shared_ptr<comm::Communicator>& world,
                                     MeshSizes sizes, const PolicyOptions& options) {
        const auto weights = [&] {
            const Policy::OnloadScope onloaded(policy);
            return full_values(policy.parameters());
        }();
        const auto found = policy.logprobs(samples);
        Policy fresh(make_mesh(world, sizes), tiny_config(), options);
        for (const auto& spec : model::parameter_specs(tiny_config()))
            fresh.load_parameter(spec.name, Tensor::from<float>(weights.at(spec.name), spec.shape));
        EXPECT_EQ(found, fresh.logprobs(samples));
    };
    for (const MeshSizes& sizes : {MeshSizes{1, 1}, MeshSizes{2, 1}, MeshSizes{2, 2, 2}}) {
        comm::run_threads(sizes.ranks(), [&](const std::shared_ptr<comm::Communicator>& world) {
            PolicyOptions options;
            options.device = device_of(world->rank());
            options.compute_dtype = DType::bfloat16;
            options.init_std = 0.2f;
            options.offload.directory = ::testing::TempDir();
            if (sizes.dp_replicate > 0) options.shard_axes = {"dp_shard"};
            Policy policy(make_mesh(world, sizes), tiny_config(), options);
            const auto check = [&] { expect_as_fresh(policy, world, sizes, options); };
            const auto step = [&] {
                policy.accumulate(samples, supervised_loss());
                policy.apply(0.1);
            };
            check();
            step();
            check();
            if (options.device == Device{}) policy.sleep(Policy::Sleep::all);
            step();
            check();
            if (options.device == Device{}) policy.sleep(Policy::Sleep::all);
            check();
            const std::string name = "model.norm.weight";
            const std::vector<float> other(static_cast<std::size_t>(tiny_config().hidden_size), 0.3f);
            const auto before = policy.logprobs(samples);
            policy.set_reference([&] {
                policy.load_parameter(name, Tensor::from<float>(other, {tiny_config().hidden_size}));
                EXPECT_NE(policy.logprobs(samples), before);
            });
            EXPECT_EQ(policy.logprobs(samples), before);
            step();
            check();
        });
    }
}

// Each takes memory in the order of its own stream, not of the one that was made last.
TEST(Mesh, TwoPoliciesOfAThreadComputeInTurns) {
    PolicyOptions options = base_options();
    options.device = device_of(0);
    const auto samples = random_samples({11, 3, 9, 6, 8}, tiny_config().vocab_size, 1);
    const auto step = [&](Policy& policy) {
        const auto logprobs = policy.logprobs(samples);
        policy.accumulate(samples, supervised_loss());
        std::map<std::string, std::vector<float>> gradients;
        {
            const Policy::OnloadScope onloaded(policy);
            gradients = full_values(policy.gradients());
        }
        policy.discard_gradients();
        return std::pair{logprobs, gradients};
    };
    Policy older(make_mesh(comm::solo(), {}), tiny_config(), options);
    const auto alone = step(older);
    Policy newer(make_mesh(comm::solo(), {}), tiny_config(), options);
    for (int turn = 0; turn < 5; ++turn) {
        EXPECT_EQ(step(older), alone);
        EXPECT_EQ(step(newer), alone);
    }
}

}  // namespace
}  // namespace tandem::trainer::testing
