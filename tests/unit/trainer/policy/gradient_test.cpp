// One rank against the double-precision oracle: log-probs, loss, and every element of every gradient.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "common/comm/launch.h"
#include "tests/unit/trainer/policy/policy_run.h"
#include "tests/unit/trainer/policy/reference_model.h"

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

// Adds noise to norms and biases: ones and zeros would hide mistakes.
void spread_vectors(Policy& policy) {
    std::mt19937 random(17);
    std::normal_distribution<float> normal;
    for (const auto& [name, values] : full_values(policy.parameters())) {
        const Tensor full = Tensor::zeros({static_cast<std::int64_t>(values.size())}, DType::float32, "test");
        if (!name.ends_with("norm.weight") && !name.ends_with(".bias")) continue;
        for (std::size_t i = 0; i < values.size(); ++i)
            full.values<float>()[i] = values[i] + 0.3f * normal(random);
        policy.load_parameter(name, full);
    }
}

void expect_like_oracle(const model::ModelConfig& config, const std::vector<Sample>& samples,
                        PolicyOptions options) {
    options.init_std = 0.3f;
    options.seed = 11;
    Policy policy(DeviceMesh::create(comm::solo(), {1, 1}, {"dp", "cp"}), config, options);
    spread_vectors(policy);
    const Weights weights = as_doubles(full_values(policy.parameters()));
    Outcome outcome;
    outcome.logprobs = policy.logprobs(samples);
    outcome.stats = policy.accumulate(samples, weighted());
    outcome.gradients = full_values(policy.gradients());
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

TEST(Gradient, BiasesOnQueriesKeysAndValues) {  // Qwen2
    auto config = tiny_config();
    config.qk_norm = false;
    config.qkv_bias = true;
    expect_like_oracle(config, random_samples({6, 1, 4}, config.vocab_size, 5), {});
}

TEST(Gradient, BiasesEverywhereAndLlama3Rope) {
    auto config = tiny_config();
    config.tie_word_embeddings = false;
    config.qk_norm = false;
    config.qkv_bias = config.o_bias = config.mlp_bias = true;
    config.rope_scaling.type = model::RopeScaling::Type::llama3;
    config.rope_scaling.factor = 8;
    config.rope_scaling.original_max_position_embeddings = 32;
    expect_like_oracle(config, random_samples({7, 4}, config.vocab_size, 6), {});
}

TEST(Gradient, QkNormWithBiasesAndYarnRope) {
    auto config = tiny_config();
    config.qkv_bias = config.o_bias = true;
    config.rope_scaling.type = model::RopeScaling::Type::yarn;
    config.rope_scaling.factor = 4;
    config.rope_scaling.original_max_position_embeddings = 16;
    expect_like_oracle(config, random_samples({6, 5}, config.vocab_size, 7), {});
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
