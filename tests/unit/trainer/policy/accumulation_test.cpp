// Gradients of several micro-batches, reduced after each or once at the end, are those of one rank.
#include "common/device/memory.h"
#include "common/error.h"
#include "tests/unit/trainer/policy/hsdp_cases.h"

namespace tandem::trainer::testing {
namespace {

TEST(Accumulation, ThreeMicroBatchesGiveTheGradientOfOneRank) {
    PolicyOptions options = base_options();
    const Values one = on_mesh({1, 1}, options, [](Policy& p) { return three_micro_batches(p, true); });
    for (const Layout& layout : kLayouts) {
        const ::testing::ScopedTrace trace(__FILE__, __LINE__, describe(layout));
        options.shard_axes = layout.shard_axes;
        for (const bool sync_each : {true, false}) {
            expect_close(
                on_mesh(layout.sizes, options, [&](Policy& p) { return three_micro_batches(p, sync_each); }),
                one);
        }
    }
}

TEST(Accumulation, MicroBatchesOfOneCallCanBeReducedAtTheEnd) {
    const auto config = tiny_config();
    const auto samples =
        random_samples({11, 13, 12, 16, 15, 11, 16, 14, 12, 15, 14, 13}, config.vocab_size, 3);
    PolicyOptions options = base_options();
    const Outcome one = run_mesh({1, 1}, config, options, samples, supervised_loss());
    options.reduce_every_micro_batch = false;
    options.max_tokens_per_rank = 16;
    options.shard_axes = {"dp_shard", "cp"};
    for (const MeshSizes& sizes : {MeshSizes{4, 1, 1}, MeshSizes{4, 1, 2}, MeshSizes{2, 2, 1}}) {
        const Outcome found = run_mesh(sizes, config, options, samples, supervised_loss());
        EXPECT_GE(found.stats.micro_batches, 3);
        expect_close(found.gradients, one.gradients);
    }
}

// Reduced late means kept whole: every group's gradients at once on every rank, instead of two layers'.
TEST(Accumulation, KeepsUnshardedGradients) {
    const auto peak = [](bool sync_each) {
        const MemoryStats before = memory_stats("unsharded_gradients");
        reset_memory_peaks();
        on_mesh({4, 1}, base_options(), [&](Policy& p) { return three_micro_batches(p, sync_each); });
        return static_cast<std::int64_t>(memory_stats("unsharded_gradients").peak_bytes - before.live_bytes);
    };
    const std::int64_t late = peak(false);
    EXPECT_GE(late, 4 * 4 * deep_config().parameter_count());
    EXPECT_GT(late, 2 * peak(true));
}

TEST(Accumulation, ReducesWhatIsPendingThoughTheLastCallHasNoTargets) {
    const auto samples = random_samples({11, 3, 9, 6}, 13, 11);
    auto nothing = samples;
    for (Sample& sample : nothing) sample.target_mask.assign(sample.tokens.size(), 0);
    const auto late = [&](Policy& policy) {
        policy.set_requires_gradient_sync(false);
        policy.accumulate(samples, supervised_loss());
        EXPECT_THROW(policy.gradients(), InvalidArgument);
        EXPECT_THROW(policy.apply(1e-3), InvalidArgument);
        policy.set_requires_gradient_sync(true);
        policy.accumulate(nothing, supervised_loss());
        return full_values(policy.gradients());
    };
    const auto at_once = [&](Policy& policy) {
        policy.accumulate(samples, supervised_loss());
        return full_values(policy.gradients());
    };
    const Values one = on_mesh({1, 1}, base_options(), at_once);
    expect_close(on_mesh({1, 1}, base_options(), late), one);
    expect_close(on_mesh({4, 1}, base_options(), late), one);
    expect_close(on_mesh({4, 1, 4}, base_options(), late), one);
}

}  // namespace
}  // namespace tandem::trainer::testing
