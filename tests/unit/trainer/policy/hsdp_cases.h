// What the tests of hybrid sharding share: the meshes and axes that they go through, and runs that bring back
// values.
#pragma once

#include <gtest/gtest.h>

#include <mutex>

#include "common/comm/launch.h"
#include "tests/unit/trainer/policy/policy_run.h"

namespace tandem::trainer::testing {

using Axes = std::vector<std::string>;
using Values = std::map<std::string, std::vector<float>>;
constexpr double kHsdpTolerance = 1e-5;

struct Layout {
    MeshSizes sizes;
    Axes shard_axes;
};

// dp × cp, of which dp_replicate; the last has replicas along two axes that do not touch.
inline const std::vector<Layout> kLayouts{
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

inline PolicyOptions base_options() {
    PolicyOptions options;
    options.init_std = 0.2f;
    options.seed = 5;
    options.max_tokens_per_rank = 24;
    return options;
}

inline model::ModelConfig deep_config() {  // more layers than there are buffers for gradients on their way
    auto config = tiny_config();
    config.num_hidden_layers = 4;
    return config;
}

inline std::string describe(const Layout& layout) {
    std::string text = "dp " + std::to_string(layout.sizes.dp) + " cp " + std::to_string(layout.sizes.cp) +
                       " dp_replicate " + std::to_string(layout.sizes.dp_replicate) + " over";
    for (const std::string& axis : layout.shard_axes) text += " " + axis;
    return text;
}

inline void expect_close(const Values& found, const Values& expected) {
    ASSERT_EQ(found.size(), expected.size());
    for (const auto& [name, values] : expected) {
        EXPECT_LE(relative_difference(found.at(name), values), kHsdpTolerance) << name;
    }
}

// Runs body(policy) on every rank; returns what rank 0 brings back.
inline Values on_mesh(const MeshSizes& sizes, const PolicyOptions& options,
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

// Three calls; the second has nothing to learn from and fewer samples than ranks.
inline Values three_micro_batches(Policy& policy, bool sync_each) {
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

}  // namespace tandem::trainer::testing
