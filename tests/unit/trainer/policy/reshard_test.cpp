// Parts of the weights that are kept between forward and backward change memory, and no bit of the result.
#include "common/device/memory.h"
#include "tests/unit/trainer/policy/hsdp_cases.h"

namespace tandem::trainer::testing {
namespace {

model::ModelConfig wide_config(std::int64_t hidden, std::int64_t layers) {
    auto config = tiny_config();
    config.hidden_size = hidden;
    config.intermediate_size = 4 * hidden + 1;
    config.num_hidden_layers = layers;
    return config;
}

// What is gathered from two halves, or not at all, is what is gathered from four quarters.
void expect_no_bit_changed(const model::ModelConfig& config, DType dtype) {
    const auto samples = random_samples({11, 3, 9, 17, 21, 6}, config.vocab_size, 7);
    PolicyOptions options = base_options();
    options.compute_dtype = dtype;
    options.init_std = 0.05f;
    const Outcome all = run_mesh({4, 1}, config, options, samples, supervised_loss());
    for (const ReshardAfterForward reshard : {ReshardAfterForward(2), ReshardAfterForward(1)}) {
        options.reshard_after_forward = reshard;
        const Outcome found = run_mesh({4, 1}, config, options, samples, supervised_loss());
        EXPECT_EQ(found.gradients, all.gradients);
        EXPECT_EQ(found.parameters, all.parameters);
        EXPECT_EQ(found.logprobs, all.logprobs);
    }
}

TEST(Reshard, AnyNumberOfRanksChangesNoBit) {
    expect_no_bit_changed(tiny_config(), DType::float32);
    expect_no_bit_changed(tiny_config(), DType::bfloat16);
}

// Large enough groups for the communication stream to be a thread of its own.
TEST(Reshard, OverlappedCommunicationChangesNoBit) {
    expect_no_bit_changed(wide_config(150, 3), DType::float32);
}

// Two ranks of four keep half of every layer: between nothing and everything.
TEST(Reshard, KeepsAsMuchAsItSays) {
    const auto config = wide_config(60, 6);
    const auto samples = random_samples({11, 3, 9, 6}, config.vocab_size, 8);
    const auto peak = [&](ReshardAfterForward reshard) {
        PolicyOptions options = base_options();
        options.reshard_after_forward = reshard;
        const MemoryStats before = memory_stats("unsharded");
        reset_memory_peaks();
        run_mesh({4, 1}, config, options, samples, supervised_loss());
        return static_cast<std::int64_t>(memory_stats("unsharded").peak_bytes - before.live_bytes);
    };
    const std::int64_t root = (config.vocab_size + 1) * config.hidden_size;
    const std::int64_t layers = 4 * 4 * (config.parameter_count() - root);  // bytes, of four ranks
    const std::int64_t freed = peak(true);
    const std::int64_t halves = peak(2);
    const std::int64_t whole = peak(false);
    EXPECT_GE(halves, freed + layers / 2 * 5 / 6);      // all layers but the last are cut
    EXPECT_LE(halves, freed + layers / 2 * 104 / 100);  // padding and alignment
    EXPECT_GE(whole, layers);
    EXPECT_EQ(peak(4), freed);
    EXPECT_EQ(peak(1), whole);
}

}  // namespace
}  // namespace tandem::trainer::testing
