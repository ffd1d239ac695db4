// The reference model: the policy's own forward with weights that stand still. And what score() says beside
// log-probs.
#include <gtest/gtest.h>

#include <cmath>

#include "common/comm/launch.h"
#include "common/device/memory.h"
#include "common/error.h"

#include "tests/unit/trainer/policy/policy_run.h"

namespace tandem::trainer::testing {
namespace {

const std::vector<MeshSizes> kMeshes{{1, 1}, {2, 1}, {1, 2}, {2, 2}};

PolicyOptions options_of(DType dtype) {
    PolicyOptions options;
    options.init_std = 0.2f;
    options.max_tokens_per_rank = 24;
    options.compute_dtype = dtype;
    return options;
}

Scores reference_scores(Policy& policy, const std::vector<Sample>& samples) {
    ScoreOptions options;
    options.reference = true;
    return policy.score(samples, options);
}

void on_mesh(MeshSizes sizes, const PolicyOptions& options, const std::function<void(Policy&)>& body) {
    comm::run_threads(sizes.dp * sizes.cp, [&](std::shared_ptr<comm::Communicator> world) {
        Policy policy(make_mesh(std::move(world), sizes), tiny_config(), options);
        body(policy);
    });
}

TEST(Reference, StandsStillUntilItIsRefreshed) {
    const auto samples = random_samples({11, 3, 9, 6}, tiny_config().vocab_size, 1);
    for (const MeshSizes& sizes : kMeshes) {
        for (const DType dtype : {DType::float32, DType::bfloat16}) {
            on_mesh(sizes, options_of(dtype), [&](Policy& policy) {
                EXPECT_FALSE(policy.has_reference());
                EXPECT_THROW(reference_scores(policy, samples), InvalidArgument);
                const auto before = policy.logprobs(samples);
                policy.set_reference();
                EXPECT_EQ(reference_scores(policy, samples).logprobs, before);  // to the bit
                policy.accumulate(samples, supervised_loss());
                policy.apply(0.1);
                const auto after = policy.logprobs(samples);
                EXPECT_NE(after, before);
                EXPECT_EQ(reference_scores(policy, samples).logprobs, before);
                EXPECT_EQ(policy.logprobs(samples), after);
                policy.set_reference();
                EXPECT_EQ(reference_scores(policy, samples).logprobs, after);
            });
        }
    }
}

TEST(Reference, LoadedWeightsDoNotTouchThePolicy) {
    const auto samples = random_samples({11, 3, 9, 6}, tiny_config().vocab_size, 1);
    on_mesh({2, 1}, options_of(DType::float32), [&](Policy& policy) {
        const auto own = policy.logprobs(samples);
        const auto weights = full_values(policy.parameters());
        policy.set_reference([&] {
            for (const auto& [name, tensor] : policy.parameters()) {
                const Tensor full = tensor.full_tensor();
                for (float& value : full.values<float>()) value *= 1.5f;
                policy.load_parameter(name, full);
            }
        });
        EXPECT_EQ(policy.logprobs(samples), own);
        EXPECT_EQ(full_values(policy.parameters()), weights);
        const auto reference = reference_scores(policy, samples).logprobs;
        EXPECT_NE(reference, own);
        for (const auto& [name, values] : full_values(policy.reference_parameters())) {
            for (std::size_t i = 0; i < values.size(); ++i)
                EXPECT_EQ(values[i], 1.5f * weights.at(name)[i]) << name;
        }
    });
}

TEST(Reference, TakesTheComputeDtypesBytesAndOnlyWhenAsked) {
    for (const DType dtype : {DType::float32, DType::bfloat16}) {
        on_mesh({1, 1}, options_of(dtype), [&](Policy& policy) {
            EXPECT_EQ(memory_stats("reference").live_bytes, 0u);
            policy.set_reference();
            EXPECT_EQ(memory_stats("reference").live_bytes * sizeof(float),
                      memory_stats("shards").live_bytes * dtype_size(dtype));
        });
    }
}

TEST(Score, EntropiesAndValuesOnEveryMesh) {
    const auto config = tiny_config();
    const auto samples = random_samples({11, 3, 1, 9, 6}, config.vocab_size, 3);
    PolicyOptions options = options_of(DType::float32);
    options.value_head = true;
    options.context = PolicyOptions::ContextMode::packed;
    Scores one;
    for (const MeshSizes& sizes : kMeshes) {
        on_mesh(sizes, options, [&](Policy& policy) {
            std::vector<float> head(10, 0.1f);
            policy.load_parameter("value_head.weight", Tensor::from<float>(head, {1, 10}));
            ScoreOptions wanted;
            wanted.temperature = 0.7f;
            wanted.entropies = wanted.values = true;
            const Scores found = policy.score(samples, wanted);
            if (sizes.dp * sizes.cp == 1) one = found;
            EXPECT_EQ(found.logprobs, one.logprobs);  // to the bit, as the engine's are
            EXPECT_EQ(found.entropies, one.entropies);
            EXPECT_EQ(found.values, one.values);
        });
    }
    for (std::size_t s = 0; s < samples.size(); ++s) {
        for (std::size_t i = 1; i < samples[s].tokens.size(); ++i) {
            const bool target = samples[s].target_mask[i] != 0;
            EXPECT_EQ(one.entropies[s][i] > 0.1f, target);
            EXPECT_LE(one.entropies[s][i], std::log(13.0f));
            EXPECT_EQ(one.values[s][i] != 0, target);
        }
    }
}

TEST(Score, ValuesNeedAValueHead) {
    const auto samples = random_samples({5}, tiny_config().vocab_size, 3);
    on_mesh({1, 1}, options_of(DType::float32), [&](Policy& policy) {
        ScoreOptions wanted;
        wanted.values = true;
        EXPECT_THROW(policy.score(samples, wanted), InvalidArgument);
        EXPECT_TRUE(policy.extra_parameters().empty());
        EXPECT_TRUE(policy.reference_parameters().empty());
    });
}

}  // namespace
}  // namespace tandem::trainer::testing
