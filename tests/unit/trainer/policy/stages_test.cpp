// Stages of a decoder, one after the other, make the bits of the whole: scores, and the gradient of every parameter; a table
// that the first and the last stage share gets its gradient from both.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <random>

#include "common/comm/launch.h"
#include "common/error.h"
#include "common/ops/elementwise.h"
#include "trainer/data/micro_batch.h"
#include "trainer/nn/decoder.h"

#include "tests/unit/trainer/policy/policy_run.h"

namespace tandem::trainer::testing {
namespace {

using Values = std::map<std::string, std::vector<float>>;

class Resident final : public GroupHooks {
  public:
    void unshard(int, int) override {}
    void after_forward(int) override {}
    void begin_gradients(int) override {}
    void after_backward(int) override {}
};

// A loss whose derivatives are numbers of each target's own.
class Weighted final : public TargetLoss {
  public:
    float temperature() const override { return 0.8f; }
    bool differentiates_entropy() const override { return true; }
    bool trains_values() const override { return false; }
    bool looks_ahead() const override { return false; }
    void look_ahead(std::span<const float>) override {}
    void gradients(std::int64_t first, const TargetScores& scores, const TargetGradients& out) override {
        for (std::size_t i = 0; i < scores.logprobs.size(); ++i) {
            out.dlogprobs[i] = std::sin(static_cast<float>(first) + static_cast<float>(i));
            out.dentropies[i] = 0.1f;
        }
    }
};

struct Found {
    std::vector<float> logprobs;
    Values gradients;
};

// Random values by name: the same in every stage.
void fill(Parameter& parameter, Stream& stream) {
    std::mt19937 random(static_cast<unsigned>(std::hash<std::string>()(parameter.name)));
    std::normal_distribution<float> normal;
    parameter.value = Tensor::empty(parameter.value_shape, DType::float32, "test");
    for (float& value : parameter.value.values<float>())
        value = (parameter.name.ends_with("norm.weight") ? 1.0f : 0.0f) + 0.3f * normal(random);
    parameter.grad = Gradient(Tensor::empty(parameter.value_shape, DType::float32, "test"));
    stream.synchronize();
}

struct Cut {
    std::vector<int> borders;  // layers: first, and one behind each stage's last
    int decoders = 0;          // that have the stages in turns; 0: one each
    bool split = false;        // gradients of inputs first, of all stages; then those of weights
};

Found run(const model::ModelConfig& config, Checkpointing checkpointing, const Cut& cut) {
    const auto alone = comm::solo();
    const TensorParallel tensor(*alone, false);
    Stream stream = Stream::make_inline();
    const std::size_t count = cut.borders.size() - 1;
    const std::size_t owners = cut.decoders > 0 ? static_cast<std::size_t>(cut.decoders) : count;
    std::vector<DecoderOptions> options(owners);
    for (std::size_t i = 0; i < count; ++i)
        options[i % owners].parts.push_back({cut.borders[i], cut.borders[i + 1], i == 0, i + 1 == count});
    std::vector<std::unique_ptr<Decoder>> decoders;
    for (DecoderOptions& one : options) {
        one.checkpointing = checkpointing;
        one.logits_chunk_rows = 3;
        decoders.push_back(std::make_unique<Decoder>(config, one, tensor));
        for (Parameter& parameter : decoders.back()->parameters()) fill(parameter, stream);
    }
    std::vector<const DecoderStage*> stages;
    for (std::size_t i = 0; i < count; ++i) stages.push_back(&decoders[i % owners]->stage(i / owners));

    const auto samples = random_samples({7, 4}, config.vocab_size, 3);
    const MicroBatch batch = make_micro_batch(samples, Pack{{0, 1}, 11}, false, 1, 0);
    const auto context = make_local_context(batch.layout, stream);
    const Compute compute{stream, DType::float32, *context, tensor, batch.positions};
    const Targets targets{batch.target_rows, batch.target_tokens};
    Resident hooks;
    Found found;
    found.logprobs.resize(batch.target_rows.size());
    Tensor x;
    for (const DecoderStage* stage : stages) x = stage->forward(compute, batch.tokens, x, hooks, nullptr);
    stages.back()->score(compute, x, targets, hooks, 1.0f, {found.logprobs, {}, {}});

    std::vector<DecoderStage::Saved> saved(count);
    x = {};
    for (std::size_t i = 0; i < count; ++i)
        x = stages[i]->forward(compute, batch.tokens, x, hooks, &saved[i]);
    Weighted loss;
    Tensor dx = stages.back()->loss(compute, x, targets, hooks, loss);
    std::vector<DecoderStage::WeightWork> later(count);
    for (std::size_t i = count; i-- > 0;)
        dx = cut.split
                 ? stages[i]->backward_input(compute, batch.tokens, dx, hooks, std::move(saved[i]), later[i])
                 : stages[i]->backward(compute, batch.tokens, dx, hooks, std::move(saved[i]));
    EXPECT_FALSE(dx.defined());
    for (std::size_t i = 0; cut.split && i < count; ++i)
        stages[i]->backward_weight(hooks, std::move(later[i]));
    for (const auto& decoder : decoders) {
        for (const Parameter& parameter : decoder->parameters()) {
            const auto values = parameter.grad.filled(stream).to_vector<float>();
            auto [at, fresh] = found.gradients.emplace(parameter.name, values);
            for (std::size_t i = 0; !fresh && i < values.size(); ++i) at->second[i] += values[i];
        }
    }
    return found;
}

TEST(Stages, MakeTheBitsOfTheWhole) {
    for (const bool tied : {false, true}) {
        model::ModelConfig config = tiny_config();
        config.num_hidden_layers = 4;
        config.tie_word_embeddings = tied;
        for (const Checkpointing checkpointing :
             {Checkpointing::none, Checkpointing::selective, Checkpointing::full}) {
            const Found whole = run(config, checkpointing, {{0, 4}});
            // Stages may have no layer: the embedding alone, or the head.
            for (const std::vector<int>& borders : std::vector<std::vector<int>>{
                     {0, 4}, {0, 2, 4}, {0, 1, 2, 3, 4}, {0, 0, 4}, {0, 4, 4}, {0, 3, 3, 4}}) {
                for (const Cut& cut : {Cut{borders}, Cut{borders, 1}, Cut{borders, 2}, Cut{borders, 0, true},
                                       Cut{borders, 2, true}}) {
                    if (cut.decoders >= static_cast<int>(borders.size())) continue;
                    const Found found = run(config, checkpointing, cut);
                    EXPECT_EQ(found.logprobs, whole.logprobs);
                    ASSERT_EQ(found.gradients.size(), whole.gradients.size());
                    for (const auto& [name, gradient] : whole.gradients) {
                        // The shared table's two gradients are added in another order.
                        const bool added = tied && name == model::kEmbedding;
                        EXPECT_LE(relative_difference(found.gradients.at(name), gradient), added ? 1e-6 : 0.0)
                            << name;
                    }
                }
            }
        }
    }
}

TEST(Stages, HaveTheParametersOfTheirLayers) {
    model::ModelConfig config = tiny_config();
    config.num_hidden_layers = 3;
    config.tie_word_embeddings = true;
    const DecoderParameters first(config, {{0, 1, true, false}}, true),
        middle(config, {{1, 2, false, false}}, true), last(config, {{2, 3, false, true}}, true);
    EXPECT_EQ(first.all.front().name, model::kEmbedding);
    EXPECT_EQ(first.groups.size(), 2U);
    EXPECT_EQ(first.head_group, DecoderParameters::kNone);
    EXPECT_EQ(middle.all.front().name, "model.layers.1.input_layernorm.weight");
    EXPECT_EQ(middle.groups.size(), 1U);
    EXPECT_EQ(last.all.front().name, model::kEmbedding) << "tied: the head's table";
    EXPECT_EQ(last.all.back().name, kValueHead);
    EXPECT_EQ(last.groups.size(), 3U);
    EXPECT_EQ(last.head_group, 1);
    EXPECT_EQ(last.value_group, 2);
}

}  // namespace
}  // namespace tandem::trainer::testing
