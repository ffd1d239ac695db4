// Hybrid sharding over every choice of axes gives the gradient of one rank, and the same bits twice; bad
// choices are refused.
#include <memory>

#include "common/error.h"
#include "tests/support/grpo_loss.h"
#include "tests/unit/trainer/policy/hsdp_cases.h"

namespace tandem::trainer::testing {
namespace {

TEST(Hsdp, EveryShardingGivesTheGradientOfOneRank) {
    const auto config = tiny_config();
    const auto samples = random_samples({11, 3, 1, 9, 6, 14, 2, 5}, config.vocab_size, 1);
    const LossOptions loss = grpo_loss(0.2f, 0.2f);
    PolicyOptions options = base_options();
    options.context = PolicyOptions::ContextMode::packed;  // whose log-probs are bit-equal
    const Outcome one = run_mesh({1, 1}, config, options, samples, loss);
    for (const Layout& layout : kLayouts) {
        const ::testing::ScopedTrace trace(__FILE__, __LINE__, describe(layout));
        options.shard_axes = layout.shard_axes;
        const Outcome found = run_mesh(layout.sizes, config, options, samples, loss);
        expect_close(found.gradients, one.gradients);
        EXPECT_NEAR(found.stats.grad_norm, one.stats.grad_norm, kHsdpTolerance * one.stats.grad_norm);
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
