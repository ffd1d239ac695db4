// Every loss gives the same number and the same gradients however its batch is ordered, packed, padded, cut
// into micro-batches and chunks, and spread over a mesh.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/grpo_loss.h"
#include "tests/unit/trainer/policy/policy_run.h"

namespace tandem::trainer::testing {
namespace {

constexpr double kTolerance = 1e-5;
using Mode = PolicyOptions::ContextMode;

std::vector<std::pair<std::string, LossOptions>> all_losses() {
    std::vector<std::pair<std::string, LossOptions>> losses;
    const auto add = [&](const std::string& name) -> LossOptions& {
        return losses.emplace_back(name, grpo_loss(0.1f, 0.15f)).second;
    };
    add("grpo");
    LossOptions& gspo = add("gspo");
    gspo.ratio = LossOptions::Ratio::sequence;
    gspo.aggregation = LossOptions::Aggregation::sequence_mean;
    gspo.clip_low = gspo.clip_high = 0.9f;
    gspo.truncation = LossOptions::Truncation::clamp;
    gspo.tis_high = 1.1f;
    LossOptions& dr_grpo = add("dr_grpo");
    dr_grpo.aggregation = LossOptions::Aggregation::constant;
    dr_grpo.constant_length = 20;
    dr_grpo.opsm_delta = 0.01f;
    add("reinforce").ratio = LossOptions::Ratio::none;
    LossOptions& ppo = add("ppo");
    ppo.value_coef = 0.5f;
    ppo.entropy_coef = 0.01f;
    ppo.temperature = 0.7f;
    LossOptions& all = add("everything");
    all.ratio = LossOptions::Ratio::sequence;
    all.clip_low = all.clip_high = 0.9f;
    all.aggregation = LossOptions::Aggregation::sequence_mean;
    all.kl = KlForm::k3;
    all.kl_coef = 0.1f;
    all.entropy_coef = 0.05f;
    all.value_coef = 0.3f;
    all.truncation = LossOptions::Truncation::band;
    all.tis_low = 0.7f;
    all.tis_high = 1.4f;
    all.opsm_delta = 0.05f;
    all.dual_clip = 1.2f;
    return losses;
}

std::vector<Sample> full_samples(const std::vector<int>& lengths, std::int64_t vocab) {
    auto samples = random_samples(lengths, vocab, 21);
    std::mt19937 random(22);
    std::normal_distribution<float> normal;
    for (Sample& sample : samples) {
        for (const float old : sample.old_logprobs) {
            sample.rollout_logprobs.push_back(old + 0.2f * normal(random));
            sample.reference_logprobs.push_back(old + 0.3f * normal(random));
            sample.values.push_back(0.3f * normal(random));
            sample.returns.push_back(normal(random));
        }
    }
    return samples;
}

PolicyOptions options_of(Mode mode, std::int64_t capacity) {
    PolicyOptions options;
    options.init_std = 0.2f;
    options.seed = 5;
    options.value_head = true;
    options.context = mode;
    options.max_tokens_per_rank = capacity;
    return options;
}

// A value head that is not zero any more.
void prepare(Policy& policy) {
    const std::int64_t hidden = policy.config().hidden_size;
    std::vector<float> weight(static_cast<std::size_t>(hidden));
    for (std::size_t i = 0; i < weight.size(); ++i) weight[i] = 0.1f * static_cast<float>(i % 5) - 0.2f;
    policy.load_parameter("value_head.weight", Tensor::from<float>(weight, {1, hidden}));
}

void expect_same(const Outcome& found, const Outcome& expected) {
    EXPECT_NEAR(found.stats.loss, expected.stats.loss, kTolerance * std::abs(expected.stats.loss) + 1e-7);
    for (const auto& [name, field] :
         std::map<std::string, double StepStats::*>{{"policy_loss", &StepStats::policy_loss},
                                                    {"entropy", &StepStats::entropy},
                                                    {"kl", &StepStats::kl},
                                                    {"clip_fraction", &StepStats::clip_fraction},
                                                    {"ratio_max", &StepStats::ratio_max},
                                                    {"reference_kl", &StepStats::reference_kl},
                                                    {"value_loss", &StepStats::value_loss},
                                                    {"importance_mean", &StepStats::importance_mean},
                                                    {"importance_fraction", &StepStats::importance_fraction},
                                                    {"dropped_fraction", &StepStats::dropped_fraction}}) {
        const double wanted = expected.stats.*field;
        EXPECT_NEAR(found.stats.*field, wanted, kTolerance * std::abs(wanted) + 1e-7) << name;
    }
    ASSERT_EQ(found.gradients.size(), expected.gradients.size());
    for (const auto& [name, gradient] : expected.gradients)
        EXPECT_LE(relative_difference(found.gradients.at(name), gradient), kTolerance) << name;
    for (const auto& [name, values] : expected.parameters)
        EXPECT_LE(relative_difference(found.parameters.at(name), values), kTolerance) << name;
}

TEST(LossMesh, EveryLossOnEveryMesh) {
    const auto config = tiny_config();
    const auto samples = full_samples({11, 3, 1, 9, 6, 14, 2, 5}, config.vocab_size);
    for (const auto& [name, loss] : all_losses()) {
        const ::testing::ScopedTrace trace(__FILE__, __LINE__, name);
        const Outcome one = run_mesh({1, 1}, config, options_of(Mode::packed, 1000), samples, loss, prepare);
        ASSERT_GT(one.stats.grad_norm, 1e-3);
        if (loss.value_coef != 0) {
            ASSERT_GT(one.stats.value_loss, 0);
        }
        for (const MeshSizes& sizes : std::vector<MeshSizes>{{2, 1}, {1, 2}, {2, 2}}) {
            for (const Mode mode : {Mode::packed, Mode::zigzag}) {
                if (sizes.cp == 1 && mode == Mode::zigzag) continue;
                const ::testing::ScopedTrace inner(__FILE__, __LINE__,
                                                   "dp " + std::to_string(sizes.dp) + " cp " +
                                                       std::to_string(sizes.cp) +
                                                       (mode == Mode::zigzag ? " zigzag" : " packed"));
                expect_same(run_mesh(sizes, config, options_of(mode, 24), samples, loss, prepare), one);
            }
        }
    }
}

TEST(LossMesh, OrderMicroBatchesAndChunksDoNotMatter) {
    const auto config = tiny_config();
    const auto samples = full_samples({11, 3, 1, 9, 6, 14, 2, 5, 8}, config.vocab_size);
    for (const auto& [name, loss] : all_losses()) {
        const ::testing::ScopedTrace trace(__FILE__, __LINE__, name);
        const Outcome one = run_mesh({1, 1}, config, options_of(Mode::packed, 1000), samples, loss, prepare);
        EXPECT_EQ(one.stats.micro_batches, 1);
        std::mt19937 random(1);
        for (const std::int64_t capacity : {14, 23, 1000}) {
            auto shuffled = samples;
            std::shuffle(shuffled.begin(), shuffled.end(), random);
            PolicyOptions options = options_of(Mode::packed, capacity);
            options.logits_chunk_rows = capacity == 23 ? 3 : 1024;
            const Outcome found = run_mesh({1, 1}, config, options, shuffled, loss, prepare);
            EXPECT_GE(found.stats.micro_batches, capacity == 1000 ? 1 : 3);
            expect_same(found, one);
        }
    }
}

// What a batch's only update finds on its way is what a pass before it would have found, to the bit: log-probs, loss,
// gradients, weights.
TEST(LossMesh, AnOnlyUpdateNeedsNoScoresFromBefore) {
    const auto config = tiny_config();
    auto samples = full_samples({11, 3, 1, 9, 6, 14, 2, 5}, config.vocab_size);
    for (const auto& [name, of] : all_losses()) {
        LossOptions loss = of;
        if (loss.ratio == LossOptions::Ratio::sequence) continue;
        loss.opsm_delta = 0;
        loss.truncation = LossOptions::Truncation::clamp;
        loss.tis_high = 1.1f;
        for (const DType dtype : {DType::float32, DType::bfloat16}) {
            for (const MeshSizes& sizes : std::vector<MeshSizes>{{1, 1}, {2, 1}, {1, 2}, {2, 2}}) {
                const ::testing::ScopedTrace trace(__FILE__, __LINE__,
                                                   fmt::format("{} dp {} cp {}", name, sizes.dp, sizes.cp));
                PolicyOptions options = options_of(sizes.cp == 1 ? Mode::packed : Mode::zigzag, 24);
                options.compute_dtype = dtype;
                options.logits_chunk_rows = 3;
                loss.on_policy = true;
                for (Sample& sample : samples) sample.old_logprobs.clear();
                const Outcome found = run_mesh(sizes, config, options, samples, loss, prepare);
                ASSERT_EQ(found.stats.logprobs.size(), samples.size());
                for (std::size_t i = 0; i < samples.size(); ++i)
                    samples[i].old_logprobs = found.stats.logprobs[i];
                loss.on_policy = false;
                const Outcome wanted = run_mesh(sizes, config, options, samples, loss, [&](Policy& policy) {
                    prepare(policy);
                    ScoreOptions as_the_loss;
                    as_the_loss.temperature = loss.temperature;
                    EXPECT_EQ(policy.score(samples, as_the_loss).logprobs, found.stats.logprobs);
                });
                EXPECT_TRUE(wanted.stats.logprobs.empty());
                EXPECT_EQ(found.stats.ratio_max, 1);
                EXPECT_EQ(wanted.stats.ratio_max, 1);
                EXPECT_LT(found.stats.importance_mean, 1);
                EXPECT_EQ(found.stats.importance_mean, wanted.stats.importance_mean);
                EXPECT_EQ(found.stats.loss, wanted.stats.loss);
                EXPECT_EQ(found.gradients, wanted.gradients);
                EXPECT_EQ(found.parameters, wanted.parameters);
            }
        }
    }
}

TEST(LossMesh, FixedMicroBatchesDoNotMatter) {
    const auto config = tiny_config();
    const auto samples = full_samples({11, 3, 1, 9, 6, 14, 2, 5, 8}, config.vocab_size);
    const LossOptions loss = all_losses().back().second;
    const Outcome one = run_mesh({1, 1}, config, options_of(Mode::packed, 1000), samples, loss, prepare);
    for (const MeshSizes& sizes : std::vector<MeshSizes>{{1, 1}, {2, 1}, {2, 2}, {2, 1, 2}}) {
        for (const bool reduce_each : {true, false}) {
            PolicyOptions options = options_of(Mode::packed, 50);
            options.micro_batch = 2;
            options.reduce_every_micro_batch = reduce_each;
            if (sizes.dp_replicate > 0) options.shard_axes = {"cp"};  // every dp rank a replica
            const Outcome found = run_mesh(sizes, config, options, samples, loss, prepare);
            EXPECT_EQ(found.stats.micro_batches, sizes.dp == 1 ? 5 : 3);
            expect_same(found, one);
        }
    }
}

// Adam's first step is as long as the learning rate, whatever the gradient: the head's is its own.
TEST(LossMesh, TheValueHeadHasALearningRateOfItsOwn) {
    const auto config = tiny_config();
    const auto samples = full_samples({11, 3, 9}, config.vocab_size);
    LossOptions loss = grpo_loss(0.2f, 0.2f);
    loss.value_coef = 1;
    const Outcome one = run_mesh({1, 1}, config, options_of(Mode::packed, 1000), samples, loss, {});
    for (const MeshSizes& sizes : std::vector<MeshSizes>{{1, 1}, {2, 1}, {2, 2}}) {
        PolicyOptions options = options_of(Mode::packed, 1000);
        options.value_lr_factor = 10;
        const Outcome found = run_mesh(sizes, config, options, samples, loss, {});
        for (const float weight : found.parameters.at("value_head.weight"))
            EXPECT_NEAR(std::abs(weight), 1e-2, 1e-5);
        for (const auto& [name, values] : one.parameters) {
            if (name == "value_head.weight") continue;
            EXPECT_LE(relative_difference(found.parameters.at(name), values), kTolerance) << name;
        }
    }
}

// Sequences that rank borders cut and packs that are all padding on a rank.
TEST(LossMesh, PaddingDoesNotMatter) {
    const auto config = tiny_config();
    const auto samples = full_samples({7}, config.vocab_size);
    for (const auto& [name, loss] : all_losses()) {
        const ::testing::ScopedTrace trace(__FILE__, __LINE__, name);
        const Outcome one = run_mesh({1, 1}, config, options_of(Mode::packed, 1000), samples, loss, prepare);
        for (const Mode mode : {Mode::packed, Mode::zigzag})
            expect_same(run_mesh({2, 2}, config, options_of(mode, 24), samples, loss, prepare), one);
    }
}

}  // namespace
}  // namespace tandem::trainer::testing
