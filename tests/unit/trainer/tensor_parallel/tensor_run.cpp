#include "tests/unit/trainer/tensor_parallel/tensor_run.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "common/comm/launch.h"
#include "common/sharding/tensor_cut.h"
#include "tests/support/grpo_loss.h"

namespace tandem::trainer::testing {
namespace {

constexpr double kLearningRate = 1e-3;
constexpr int kMostRanks = 8;

double norm_of(const std::vector<float>& values) {
    double squares = 0;
    for (const float value : values) squares += static_cast<double>(value) * static_cast<double>(value);
    return std::sqrt(squares);
}

double norm_of(const Values& all) {
    double squares = 0;
    for (const auto& [name, values] : all) {
        const double norm = norm_of(values);
        squares += norm * norm;
    }
    return std::sqrt(squares);
}

void expect_close(const std::string& name, const std::vector<float>& found, const std::vector<float>& one,
                  double scale, double tolerance) {
    ASSERT_EQ(found.size(), one.size()) << name;
    double squares = 0;
    for (std::size_t i = 0; i < one.size(); ++i) {
        const double d = static_cast<double>(found[i]) - static_cast<double>(one[i]);
        squares += d * d;
    }
    EXPECT_LE(std::sqrt(squares), tolerance * std::max(norm_of(one), 1e-3 * scale)) << name;
}

Values with_prefix(const Values& all, const std::string& prefix) {
    Values result;
    for (const auto& [name, values] : all) {
        if (name.starts_with(prefix)) result[name.substr(prefix.size())] = values;
    }
    return result;
}

}  // namespace

void expect_close(const std::string& kind, const Values& found, const Values& one, double tolerance) {
    ASSERT_EQ(found.size(), one.size()) << kind;
    const double scale = norm_of(one);
    for (const auto& [name, values] : one)
        expect_close(kind + " " + name, found.at(name), values, scale, tolerance);
}

namespace {

// A step of AdamW is the learning rate wherever a gradient is far from zero, and its sign alone near it.
void expect_close_weights(const Step& found, const Step& one, double tolerance) {
    float largest = 0;
    for (const auto& [name, values] : one.gradients) {
        for (const float value : values) largest = std::max(largest, std::abs(value));
    }
    for (const auto& [name, gradient] : one.gradients) {
        const std::vector<float>&here = found.state.at("weights/" + name),
              &there = one.state.at("weights/" + name);
        for (std::size_t i = 0; i < gradient.size(); ++i) {
            if (std::abs(gradient[i]) <= 1e-6f * largest) continue;
            // The gradient's own error, at most as large as that of its tensor, moves the step by its ratio.
            const double moved =
                kLearningRate * std::min(1.0, tolerance * norm_of(gradient) / std::abs(gradient[i]));
            EXPECT_NEAR(here[i], there[i], tolerance * std::abs(there[i]) + 4 * moved + 1e-7)
                << name << " " << i;
        }
    }
}

// Leaves NaN wherever a pass writes gradients.
void make_nan_gradients(Policy& policy, const TensorRun& run) {
    std::vector<Sample> samples = run.batches[0];
    const float nan = std::numeric_limits<float>::quiet_NaN();
    for (Sample& sample : samples) {
        sample.advantages.assign(sample.tokens.size(), nan);
        sample.returns.assign(sample.tokens.size(), nan);
    }
    LossOptions loss = run.loss;
    loss.value_coef = run.options.value_head ? 0.5f : 0.0f;
    policy.accumulate(samples, loss);
    EXPECT_FALSE(policy.non_finite_gradients().empty());
    policy.discard_gradients();
}

std::vector<Sample> with_lengths(const std::vector<int>& lengths, std::int64_t vocab, unsigned seed) {
    std::vector<Sample> samples = random_samples(lengths, vocab, seed);
    std::mt19937 random(seed + 100);
    std::normal_distribution<float> normal;
    for (Sample& sample : samples) {
        for (std::size_t i = 0; i < sample.tokens.size(); ++i) {
            sample.returns.push_back(normal(random));
            sample.values.push_back(normal(random));
        }
    }
    return samples;
}

}  // namespace

void randomise(Policy& policy, unsigned seed, bool value_head) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    std::vector<std::pair<std::string, Shape>> parameters;
    for (const auto& spec : model::parameter_specs(policy.config()))
        parameters.emplace_back(spec.name, spec.shape);
    if (value_head) parameters.emplace_back(kValueHead, Shape{1, policy.config().hidden_size});
    for (const auto& [name, shape] : parameters) {
        const Tensor full = Tensor::zeros(shape, DType::float32, "test");
        for (float& value : full.values<float>())
            value = (name.ends_with("norm.weight") ? 1.0f : 0.0f) + 0.25f * normal(random);
        policy.load_parameter(name, full);
    }
}

model::ModelConfig llama_with_biases() {
    model::ModelConfig config = tiny_config();
    config.qk_norm = false;
    config.qkv_bias = config.o_bias = config.mlp_bias = true;
    config.tie_word_embeddings = false;
    return config;
}

model::ModelConfig qwen2_tied() {
    model::ModelConfig config = tiny_config();
    config.qk_norm = false;
    config.qkv_bias = true;
    config.num_attention_heads = 8;
    config.num_key_value_heads = 4;
    config.head_dim = 4;
    config.vocab_size = 17;
    return config;
}

model::ModelConfig qwen3_of_few_kv_heads() {
    model::ModelConfig config = tiny_config();
    config.num_attention_heads = 8;
    config.num_key_value_heads = 1;
    config.head_dim = 4;
    config.vocab_size = 9;  // over 8 ranks: 2, 2, 2, 2, 1, 0, 0, 0
    config.tie_word_embeddings = false;
    return config;
}

TensorRun tensor_run(const model::ModelConfig& config, int micro_batches) {
    TensorRun run{config, {}, {}, grpo_loss(0.2f, 0.2f)};
    run.options.max_tokens_per_rank = 24;
    run.loss.entropy_coef = 0.05f;
    const std::vector<std::vector<int>> lengths{
        {11, 3, 1, 9, 6, 14, 2, 5, 8, 13}, {7, 4}, {5, 12, 3, 16, 10, 1, 9}};
    for (int i = 0; i < micro_batches; ++i)
        run.batches.push_back(with_lengths(lengths[static_cast<std::size_t>(i)], config.vocab_size,
                                           31 + static_cast<unsigned>(i)));
    return run;
}

Step run_step(std::shared_ptr<comm::Communicator> world, MeshSizes sizes, const TensorRun& run) {
    PolicyOptions options = run.options;
    options.device = device_of(world->rank());
    Policy policy(make_mesh(std::move(world), sizes), run.config, options);
    randomise(policy, 77, options.value_head);
    Step step;
    ScoreOptions wanted;
    wanted.entropies = true;
    wanted.values = options.value_head;
    if (run.after_nan) make_nan_gradients(policy, run);
    if (run.sleeps) policy.sleep(options.deepest_sleep);
    step.scores = policy.score(run.batches[0], wanted);
    for (const std::vector<Sample>& batch : run.batches) {
        const StepStats stats = policy.accumulate(batch, run.loss);
        step.losses.push_back(stats.loss);
        step.tokens += stats.tokens;
        step.target_tokens += stats.target_tokens;
    }
    {
        const Policy::OnloadScope onloaded(policy);
        step.gradients = full_values(policy.gradients());
    }
    step.grad_norm = policy.apply(kLearningRate);
    const Policy::OnloadScope onloaded(policy, /*optimizer=*/true);
    step.state = full_values(policy.training_state());
    return step;
}

Step run_alone(const TensorRun& run) {
    TensorRun whole = run;
    whole.options.max_tokens_per_rank = 1000;
    whole.options.shard_axes.clear();
    whole.after_nan = false;
    whole.options.reshard_after_forward = true;
    return run_step(comm::solo(), {}, whole);
}

Step of_stage(const Step& whole, const Step& stage) {
    Step part = whole;
    std::erase_if(part.gradients, [&](const auto& item) { return !stage.gradients.contains(item.first); });
    std::erase_if(part.state, [&](const auto& item) { return !stage.state.contains(item.first); });
    return part;
}

void expect_same_step(const Step& found, const Step& one, double tolerance) {
    ASSERT_EQ(found.losses.size(), one.losses.size());
    EXPECT_EQ(found.tokens, one.tokens);
    EXPECT_EQ(found.target_tokens, one.target_tokens);
    for (std::size_t i = 0; i < one.losses.size(); ++i)
        EXPECT_NEAR(found.losses[i], one.losses[i], tolerance * std::max(1.0, std::abs(one.losses[i])));
    EXPECT_NEAR(found.grad_norm, one.grad_norm, tolerance * one.grad_norm);
    const auto expect_scores = [&](const char* kind, const Scores::PerToken& here,
                                   const Scores::PerToken& there) {
        ASSERT_EQ(here.size(), there.size()) << kind;
        for (std::size_t s = 0; s < there.size(); ++s) {
            for (std::size_t t = 0; t < there[s].size(); ++t)
                EXPECT_NEAR(here[s][t], there[s][t], tolerance * std::max(1.0f, std::abs(there[s][t])))
                    << kind << " of sample " << s << " token " << t;
        }
    };
    expect_scores("log-prob", found.scores.logprobs, one.scores.logprobs);
    expect_scores("entropy", found.scores.entropies, one.scores.entropies);
    expect_scores("value", found.scores.values, one.scores.values);
    expect_close("gradient", found.gradients, one.gradients, tolerance);
    for (const char* prefix : {"exp_avg/", "exp_avg_sq/"})
        expect_close(prefix, with_prefix(found.state, prefix), with_prefix(one.state, prefix), 2 * tolerance);
    expect_close_weights(found, one, tolerance);
}

std::vector<MeshSizes> meshes_of(int ranks) {
    std::vector<MeshSizes> meshes;
    for (int tp = 1; tp <= ranks; ++tp) {
        for (int cp = 1; ranks % tp == 0 && cp <= ranks / tp; ++cp) {
            if (ranks / tp % cp != 0) continue;
            const int dp = ranks / tp / cp;
            for (int replicas = 1; replicas <= dp; ++replicas) {
                if (dp % replicas == 0) meshes.push_back({dp, cp, replicas, tp});
            }
        }
    }
    return meshes;
}

std::vector<MeshSizes> staged_meshes(const model::ModelConfig& config) {
    std::vector<MeshSizes> meshes;
    const auto most_stages = static_cast<int>(config.num_hidden_layers) + 2;
    for (int pp = 2; pp <= most_stages; ++pp) {
        for (int ranks = 1; ranks * pp <= kMostRanks; ++ranks) {
            for (MeshSizes sizes : meshes_of(ranks)) {
                if (tensor_degrees(config, sizes.tp).back() != sizes.tp) continue;
                sizes.pp = pp;
                meshes.push_back(sizes);
            }
        }
    }
    return meshes;
}

std::vector<pipeline::Options> schedules_of(const model::ModelConfig& config, int pp) {
    const auto most = static_cast<int>(config.num_hidden_layers) + 2;
    std::vector<pipeline::Options> result;
    for (const std::string& name : pipeline::schedule_names()) {
        const bool takes_three = name != "ZBVZeroBubble" && name != "DualPipeV";
        const int usual = pipeline::usual_stages_per_rank(name);
        for (int stages = usual; stages <= (usual > 1 && takes_three ? 3 : usual); ++stages) {
            if (stages * pp > most) continue;
            pipeline::Options& options = result.emplace_back();
            options.schedule = name;
            options.stages_per_rank = stages;
        }
    }
    return result;
}

std::string describe(const MeshSizes& sizes) {
    return (sizes.pp > 1 ? "pp " + std::to_string(sizes.pp) + " " : std::string()) + "dp " +
           std::to_string(sizes.dp) + " dp_replicate " + std::to_string(sizes.dp_replicate) + " cp " +
           std::to_string(sizes.cp) + " tp " + std::to_string(sizes.tp);
}

}  // namespace tandem::trainer::testing
