// Activation checkpointing changes memory, not results: gradients are equal bit for bit, on every form of
// context attention, and a layer keeps no more than its mode says.
#include <gtest/gtest.h>

#include "common/device/memory.h"

#include "tests/support/grpo_loss.h"
#include "tests/unit/trainer/policy/policy_run.h"

namespace tandem::trainer::testing {
namespace {

using Mode = PolicyOptions::ContextMode;

PolicyOptions checkpointing_options() {
    PolicyOptions options;
    options.init_std = 0.2f;
    options.seed = 5;
    options.max_tokens_per_rank = 40;
    return options;
}

struct Case {
    MeshSizes mesh;
    Mode context = Mode::automatic;
    DType dtype = DType::float32;
    bool qk_norm = true;
};

class CheckpointingTest : public ::testing::TestWithParam<Case> {};

TEST_P(CheckpointingTest, GradientsAreBitIdentical) {
    const Case& c = GetParam();
    auto config = tiny_config();
    config.num_hidden_layers = 3;
    config.qk_norm = c.qk_norm;
    PolicyOptions options = checkpointing_options();
    options.context = c.context;
    options.compute_dtype = c.dtype;
    const auto samples = random_samples({11, 3, 37, 9, 6, 14}, config.vocab_size, 1);
    const Outcome plain = run_mesh(c.mesh, config, options, samples, grpo_loss(0.2f, 0.2f));
    ASSERT_GT(plain.stats.grad_norm, 1e-3);
    for (const Checkpointing mode : {Checkpointing::selective, Checkpointing::full}) {
        options.checkpointing = mode;
        const Outcome found = run_mesh(c.mesh, config, options, samples, grpo_loss(0.2f, 0.2f));
        EXPECT_EQ(found.gradients, plain.gradients) << static_cast<int>(mode);
        EXPECT_EQ(found.parameters, plain.parameters) << static_cast<int>(mode);
        EXPECT_EQ(found.stats.loss, plain.stats.loss) << static_cast<int>(mode);
    }
}

INSTANTIATE_TEST_SUITE_P(Meshes, CheckpointingTest,
                         ::testing::Values(Case{{1, 1}}, Case{{1, 1}, Mode::automatic, DType::bfloat16},
                                           Case{{1, 1}, Mode::automatic, DType::float32, false}, Case{{2, 1}},
                                           Case{{1, 2}, Mode::packed}, Case{{1, 2}, Mode::zigzag},
                                           Case{{1, 2}, Mode::zigzag, DType::bfloat16},
                                           Case{{2, 2}, Mode::packed, DType::bfloat16, false}));

// Of many layers' activations each mode leaves its part: none > selective > full, by what a layer keeps.
TEST(Checkpointing, KeepsWhatItSays) {
    auto config = tiny_config();
    config.hidden_size = 48;
    config.intermediate_size = 144;
    config.num_attention_heads = 4;
    config.num_key_value_heads = 2;
    config.head_dim = 12;
    config.num_hidden_layers = 40;
    config.qk_norm = false;
    const auto samples = random_samples({64}, config.vocab_size, 3);
    PolicyOptions options = checkpointing_options();
    options.max_tokens_per_rank = 64;
    const auto peak = [&](Checkpointing mode) {
        options.checkpointing = mode;
        reset_memory_peaks();
        const std::uint64_t before = memory_stats("activations").live_bytes;
        run_mesh({1, 1}, config, options, samples, supervised_loss());
        return static_cast<double>(memory_stats("activations").peak_bytes - before);
    };
    // Elements of a token and layer: hidden 48, queries 48, keys and values 24 each, intermediate 144; and
    // float32 scalars: one a norm, one a head.
    const double rows = 64 * 40 * 4;
    const double none = (4 * 48 + 2 * 48 + 2 * 24 + 2 * 144 + 2 + 4) * rows;
    const double selective = (2 * 48 + 2 * 48 + 2 * 24 + 2 + 4) * rows;
    const double full = (48 + 1) * rows;
    const double one_layer =
        (none + (3 * 144 + 5 * 48) * rows) / 40;  // that is being computed, and its gradients
    for (const auto& [mode, kept] : {std::pair{Checkpointing::none, none},
                                     {Checkpointing::selective, selective},
                                     {Checkpointing::full, full}}) {
        const double found = peak(mode);
        EXPECT_GE(found, kept) << static_cast<int>(mode);
        EXPECT_LE(found, kept + one_layer) << static_cast<int>(mode);
    }
}

}  // namespace
}  // namespace tandem::trainer::testing
