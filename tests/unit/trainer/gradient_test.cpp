// One rank against the double-precision oracle: log-probs, loss, and every element of every gradient.
#include <gtest/gtest.h>

#include <cmath>

#include "common/comm/launch.h"
#include "policy_run.h"
#include "reference_model.h"

namespace tandem::trainer::testing {
namespace {

Weights as_doubles(const std::map<std::string, std::vector<float>>& values) {
    Weights result;
    for (const auto& [name, list] : values) result[name].assign(list.begin(), list.end());
    return result;
}

// Loss of reference_loss: -advantage * logprob.
LossOptions weighted() {
    LossOptions options;
    options.ratio = LossOptions::Ratio::none;
    return options;
}

void expect_like_oracle(const model::ModelConfig& config, const std::vector<Sample>& samples,
                        PolicyOptions options) {
    options.init_std = 0.3f;
    options.seed = 11;
    // An outcome holds the parameters after a step; the oracle needs the fresh ones.
    Weights weights;
    {
        Policy policy(DeviceMesh::create(comm::solo(), {1, 1}, {"dp", "cp"}), config, options);
        weights = as_doubles(full_values(policy.parameters()));
    }
    const Outcome outcome = run_mesh({1, 1}, config, options, samples, weighted());
    for (std::size_t s = 0; s < samples.size(); ++s) {
        const auto expected = reference_logprobs(config, weights, samples[s].tokens);
        for (std::size_t i = 0; i < expected.size(); ++i) {
            const double wanted = samples[s].target_mask[i + 1] != 0 ? expected[i] : 0.0;
            EXPECT_NEAR(outcome.logprobs[s][i + 1], wanted, 2e-5) << "sample " << s << " token " << i + 1;
        }
    }
    EXPECT_NEAR(outcome.stats.loss, reference_loss(config, weights, samples), 1e-5);
    for (const auto& [name, expected] : reference_gradients(config, weights, samples)) {
        const std::vector<float> rounded(expected.begin(), expected.end());
        EXPECT_LE(relative_difference(outcome.gradients.at(name), rounded), 2e-5) << name;
    }
}

TEST(Gradient, TiedWithQkNorm) {
    const auto config = tiny_config();
    expect_like_oracle(config, random_samples({7, 1, 5}, config.vocab_size, 1), {});
}

TEST(Gradient, UntiedWithoutQkNorm) {
    auto config = tiny_config();
    config.tie_word_embeddings = false;
    config.qk_norm = false;
    expect_like_oracle(config, random_samples({6, 4}, config.vocab_size, 2), {});
}

TEST(Gradient, SeveralMicroBatchesAndLogitChunks) {
    const auto config = tiny_config();
    PolicyOptions options;
    options.max_tokens_per_rank = 8;  // three packs
    options.logits_chunk_rows = 2;
    expect_like_oracle(config, random_samples({7, 5, 6}, config.vocab_size, 3), options);
}

TEST(Gradient, GradientsAddUpUntilApplied) {
    const auto config = tiny_config();
    const auto samples = random_samples({5, 6}, config.vocab_size, 4);
    Policy policy(DeviceMesh::create(comm::solo(), {1, 1}, {"dp", "cp"}), config, {});
    policy.accumulate(samples, supervised_loss());
    const auto once = full_values(policy.gradients());
    policy.accumulate(samples, supervised_loss());
    for (const auto& [name, values] : full_values(policy.gradients())) {
        std::vector<float> twice = once.at(name);
        for (float& value : twice) value *= 2;
        EXPECT_LE(relative_difference(values, twice), 1e-6) << name;
    }
    policy.apply(1e-3);
    for (const auto& [name, values] : full_values(policy.gradients())) {
        EXPECT_EQ(values, std::vector<float>(values.size(), 0.0f)) << name;
    }
}

TEST(Gradient, BadSamplesAreNamed) {
    const auto config = tiny_config();
    Policy policy(DeviceMesh::create(comm::solo(), {1, 1}, {"dp", "cp"}), config, {});
    const std::vector<Sample> outside{{{1, 2}, {0, 1}, {}, {}}, {{1, 13}, {0, 1}, {}, {}}};
    EXPECT_THROW(policy.logprobs(outside), InvalidArgument);
    EXPECT_THROW(policy.accumulate({{{1, 2}, {1}, {}, {}}}, supervised_loss()), InvalidArgument);
    EXPECT_THROW(policy.accumulate({{{1, 2}, {0, 1}, {1.0f}, {}}}, supervised_loss()), InvalidArgument);
    EXPECT_THROW(policy.load_parameter("model.norm.weight", Tensor::zeros({3}, DType::float32, "test")),
                 InvalidArgument);
    EXPECT_THROW(policy.load_parameter("no.such", Tensor::zeros({3}, DType::float32, "test")),
                 InvalidArgument);
}

}  // namespace
}  // namespace tandem::trainer::testing
