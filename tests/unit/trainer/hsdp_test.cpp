// Hybrid sharding, parts kept between forward and backward, and gradients reduced late: each gives the
// gradient of one rank that does none of it, and the same bits twice.
#include <gtest/gtest.h>

#include <mutex>

#include "common/comm/launch.h"
#include "common/device/memory.h"
#include "common/error.h"
#include "policy_run.h"

namespace tandem::trainer::testing {
namespace {

using Axes = std::vector<std::string>;
using Values = std::map<std::string, std::vector<float>>;
constexpr double kTolerance = 1e-5;

struct Layout {
    MeshSizes sizes;
    Axes shard_axes;
};

// dp × cp, of which dp_replicate; the last has replicas along two axes that do not touch.
const std::vector<Layout> kLayouts{
    {{4, 1, 2}, {"dp_shard"}},
    {{4, 1, 2}, {"dp_shard", "cp"}},
    {{4, 1, 1}, {"dp_shard", "cp"}},
    {{4, 1, 4}, {"dp_shard"}},
    {{2, 2, 2}, {"dp_shard", "cp"}},
    {{2, 2, 2}, {"dp_replicate", "dp_shard"}},
    {{2, 2, 2}, {"cp"}},
    {{2, 2, 2}, {"dp_replicate", "dp_shard", "cp"}},
    {{2, 2}, {"cp"}},
    {{4, 2, 2}, {"dp_shard"}},
};

PolicyOptions base_options() {
    PolicyOptions options;
    options.init_std = 0.2f;
    options.seed = 5;
    options.max_tokens_per_rank = 24;
    return options;
}

model::ModelConfig deep_config() {  // more layers than there are buffers for gradients on their way
    auto config = tiny_config();
    config.num_hidden_layers = 6;
    return config;
}

model::ModelConfig large_config() {  // its groups are handed to a communication thread
    auto config = deep_config();
    config.hidden_size = 150;
    config.intermediate_size = 601;
    return config;
}

std::string describe(const Layout& layout) {
    std::string text = "dp " + std::to_string(layout.sizes.dp) + " cp " + std::to_string(layout.sizes.cp) +
                       " dp_replicate " + std::to_string(layout.sizes.dp_replicate) + " over";
    for (const std::string& axis : layout.shard_axes) text += " " + axis;
    return text;
}

void expect_close(const Values& found, const Values& expected) {
    ASSERT_EQ(found.size(), expected.size());
    for (const auto& [name, values] : expected) {
        EXPECT_LE(relative_difference(found.at(name), values), kTolerance) << name;
    }
}

// Runs body(policy) on every rank; returns what rank 0 brings back.
Values on_mesh(const MeshSizes& sizes, const PolicyOptions& options,
               const std::function<Values(Policy&)>& body) {
    Values result;
    std::mutex mutex;
    comm::run_threads(sizes.dp * sizes.cp, [&](std::shared_ptr<comm::Communicator> world) {
        const bool first = world->rank() == 0;
        Policy policy(make_mesh(std::move(world), sizes), deep_config(), options);
        Values values = body(policy);
        const std::lock_guard lock(mutex);
        if (first) result = std::move(values);
    });
    return result;
}

TEST(Hsdp, EveryShardingGivesTheGradientOfOneRank) {
    const auto config = tiny_config();
    const auto samples = random_samples({11, 3, 1, 9, 6, 14, 2, 5}, config.vocab_size, 1);
    const LossFunction loss = grpo_loss(0.2f, 0.2f);
    PolicyOptions options = base_options();
    options.context = PolicyOptions::ContextMode::packed;  // whose log-probs are bit-equal
    const Outcome one = run_mesh({1, 1}, config, options, samples, loss);
    for (const Layout& layout : kLayouts) {
        const ::testing::ScopedTrace trace(__FILE__, __LINE__, describe(layout));
        options.shard_axes = layout.shard_axes;
        const Outcome found = run_mesh(layout.sizes, config, options, samples, loss);
        expect_close(found.gradients, one.gradients);
        EXPECT_NEAR(found.stats.grad_norm, one.stats.grad_norm, kTolerance * one.stats.grad_norm);
        EXPECT_EQ(found.logprobs, one.logprobs);
    }
}

TEST(Hsdp, ParametersSayHowTheyLie) {
    PolicyOptions options;
    options.shard_axes = {"dp_shard", "cp"};
    on_mesh({4, 1, 2}, options, [](Policy& policy) {
        const DTensor tensor = policy.parameters().front().second;
        EXPECT_EQ(tensor.mesh().names(), (Axes{"dp_replicate", "dp_shard_cp"}));
        EXPECT_EQ(tensor.placements(), (Placements{Replicate(), Shard(0)}));
        return Values();
    });
    options.shard_axes = {"dp_replicate", "dp_shard"};
    on_mesh({2, 2, 2}, options, [](Policy& policy) {
        const DTensor tensor = policy.gradients().front().second;
        EXPECT_EQ(tensor.mesh().names(), (Axes{"dp", "cp"}));
        EXPECT_EQ(tensor.placements(), (Placements{Shard(0), Replicate()}));
        return Values();
    });
}

// What is gathered from two halves, or not at all, is what is gathered from four quarters.
TEST(Reshard, AnyNumberOfRanksChangesNoBit) {
    for (const auto& config : {tiny_config(), large_config()}) {
        const auto samples = random_samples({11, 3, 9, 17, 21, 6}, config.vocab_size, 7);
        for (const DType dtype : {DType::float32, DType::bfloat16}) {
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
    }
}

// Two ranks of four keep half of every layer: between nothing and everything.
TEST(Reshard, KeepsAsMuchAsItSays) {
    const auto config = large_config();
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
    EXPECT_GE(halves, freed + layers / 2 * 5 / 6);  // all layers but the last are cut
    EXPECT_LE(halves, freed + layers / 2 * 102 / 100);
    EXPECT_GE(whole, layers);
    EXPECT_EQ(peak(4), freed);
    EXPECT_EQ(peak(1), whole);
}

// Three calls; the second has nothing to learn from and fewer samples than ranks.
Values three_micro_batches(Policy& policy, bool sync_each) {
    const std::int64_t vocab = policy.config().vocab_size;
    auto nothing = random_samples({4}, vocab, 12);
    nothing[0].target_mask.assign(4, 0);
    for (const auto& [samples, last] : {std::pair{random_samples({11, 3, 9, 6}, vocab, 11), false},
                                        {nothing, false},
                                        {random_samples({8}, vocab, 13), false},
                                        {random_samples({5, 14, 2, 12, 7}, vocab, 14), true}}) {
        policy.set_requires_gradient_sync(sync_each || last);
        policy.accumulate(samples, supervised_loss());
    }
    return full_values(policy.gradients());
}

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

TEST(Hsdp, TwoRunsAreBitIdentical) {
    PolicyOptions options = base_options();
    options.reshard_after_forward = 2;
    options.shard_axes = {"dp_shard", "cp"};
    const auto train = [](Policy& policy) {
        for (int step = 0; step < 5; ++step) {
            three_micro_batches(policy, false);
            policy.apply(1e-2);
            policy.logprobs(random_samples({9, 4, 12}, 13, 2));
        }
        return full_values(policy.parameters());
    };
    const Values first = on_mesh({4, 2, 2}, options, train);
    EXPECT_EQ(first, on_mesh({4, 2, 2}, options, train));
    EXPECT_NE(first, on_mesh({4, 2, 2}, options, [](Policy& p) { return full_values(p.parameters()); }));
}

void expect_refused(const MeshSizes& sizes, const PolicyOptions& options, const std::string& reason) {
    comm::run_threads(sizes.dp * sizes.cp, [&](std::shared_ptr<comm::Communicator> world) {
        try {
            const Policy policy(make_mesh(std::move(world), sizes), tiny_config(), options);
            ADD_FAILURE() << "accepted; expected: " << reason;
        } catch (const InvalidArgument& error) {
            EXPECT_NE(std::string(error.what()).find(reason), std::string::npos) << error.what();
        }
    });
}

TEST(Hsdp, RefusesBadValues) {
    for (const Axes& axes :
         {Axes{"tp"}, Axes{"dp"}, Axes{"dp_replicate", "cp"}, Axes{"cp", "dp_shard"}, Axes{"cp", "cp"}}) {
        PolicyOptions options;
        options.shard_axes = axes;
        expect_refused({2, 1, 2}, options, "not neighbours");
    }
    PolicyOptions options;
    options.reshard_after_forward = 3;
    expect_refused({4, 1}, options, "is 3: it must be a factor of the 4 ranks");
    options.reshard_after_forward = 8;
    expect_refused({4, 1}, options, "is 8: it must be a factor of the 4 ranks");
    EXPECT_THROW(ReshardAfterForward(0), InvalidArgument);
    EXPECT_THROW(ReshardAfterForward(-2), InvalidArgument);
    EXPECT_THROW(Policy(DeviceMesh::create(comm::solo(), {1, 1}, {"cp", "dp"}), tiny_config(), {}),
                 InvalidArgument);
}

}  // namespace
}  // namespace tandem::trainer::testing
