#include "trainer/nn/decoder.h"

#include <map>
#include <tuple>
#include <utility>

#include "common/model/parameters.h"

namespace tandem::trainer {
namespace {

constexpr int kEmbeddingGroup = 0;  // tied, this is the root group

using model::Role;

// A model's parameters by layer, role and whether it is the bias.
class ByRole {
  public:
    explicit ByRole(std::vector<Parameter>& all) {
        for (Parameter& one : all) at_[{one.layer, one.role, one.bias}] = &one;
    }
    Parameter* find(int layer, Role role, bool bias = false) const {
        const auto found = at_.find({layer, role, bias});
        return found == at_.end() ? nullptr : found->second;
    }
    Parameter& at(int layer, Role role) const {
        Parameter* const found = find(layer, role);
        enforce(found != nullptr, "layer {} lacks a parameter of the decoder", layer);
        return *found;
    }

  private:
    std::map<std::tuple<int, Role, bool>, Parameter*> at_;
};

DecoderLayer make_layer(const model::ModelConfig& config, const ops::RopeTable& rope,
                        const ByRole& parameters, int layer) {
    const auto linear = [&](Role role) {
        return Linear(parameters.at(layer, role), parameters.find(layer, role, true));
    };
    const auto norm = [&](Role role) { return RmsNorm(parameters.at(layer, role), config.rms_norm_eps); };
    AttentionParameters attention{linear(Role::q),
                                  linear(Role::k),
                                  linear(Role::v),
                                  linear(Role::o),
                                  parameters.find(layer, Role::q_norm),
                                  parameters.find(layer, Role::k_norm)};
    return {norm(Role::input_norm), Attention(config, rope, attention), norm(Role::post_norm),
            Mlp(linear(Role::gate), linear(Role::up), linear(Role::down))};
}

}  // namespace

Decoder::Decoder(const model::ModelConfig& config, const DecoderOptions& options)
    : tied_(config.tie_word_embeddings), checkpointing_(options.checkpointing) {
    const auto layers = static_cast<int>(config.num_hidden_layers);
    head_group_ = tied_ ? kEmbeddingGroup : layers + 1;
    groups_.resize(static_cast<std::size_t>(tied_ ? layers + 1 : layers + 2));
    for (model::ParameterSpec& spec : model::parameter_specs(config)) {
        const int group = spec.layer >= 0                ? spec.layer + 1
                          : spec.role == Role::embedding ? kEmbeddingGroup
                                                         : head_group_;
        groups_[static_cast<std::size_t>(group)].push_back(static_cast<int>(parameters_.size()));
        parameters_.push_back({std::move(spec), {}, {}});
    }
    if (options.value_head) {
        value_group_ = static_cast<int>(groups_.size());
        groups_.push_back({static_cast<int>(parameters_.size())});
        parameters_.push_back({{kValueHead, {1, config.hidden_size}}, {}, {}});
    }
    const ByRole by_role(parameters_);
    Parameter& table = by_role.at(-1, Role::embedding);
    embedding_ = std::make_unique<Embedding>(table);
    const model::RopeFrequencies frequencies = config.rope_frequencies();
    const ops::RopeTable rope(frequencies.inverse, frequencies.attention_factor);
    for (int layer = 0; layer < layers; ++layer) layers_.push_back(make_layer(config, rope, by_role, layer));
    head_ = std::make_unique<LmHead>(
        RmsNorm(by_role.at(-1, Role::norm), config.rms_norm_eps), tied_ ? table : by_role.at(-1, Role::head),
        options.value_head ? &parameters_.back() : nullptr, options.logits_chunk_rows);
}

Tensor Decoder::forward_layers(const Compute& compute, std::span<const std::int32_t> tokens,
                               GroupHooks& hooks, Pass pass, std::vector<DecoderLayer::Saved>& saved) const {
    hooks.unshard(kEmbeddingGroup, layer_group(0));
    Tensor x = embedding_->forward(compute, tokens);
    if (!tied_) hooks.after_forward(kEmbeddingGroup);
    for (std::size_t layer = 0; layer < layers_.size(); ++layer) {
        const bool last = layer + 1 == layers_.size();
        const int next = !last ? layer_group(layer + 1) : tied_ ? GroupHooks::kNone : head_group_;
        hooks.unshard(layer_group(layer), next);
        if (pass == Pass::training) {
            x = layers_[layer].forward(compute, x, saved[layer]);
            layers_[layer].drop(saved[layer], checkpointing_);
        } else {
            DecoderLayer::Saved dropped;
            x = layers_[layer].forward(compute, x, dropped);
        }
        // The backward starts with the last layer: it stays.
        if (!last || pass == Pass::inference) hooks.after_forward(layer_group(layer));
    }
    if (!tied_) hooks.unshard(head_group_, GroupHooks::kNone);
    return x;
}

void Decoder::score(const Compute& compute, std::span<const std::int32_t> tokens, const Targets& targets,
                    GroupHooks& hooks, float temperature, const TargetScores& scores) const {
    std::vector<DecoderLayer::Saved> none;
    const Tensor x = forward_layers(compute, tokens, hooks, Pass::inference, none);
    if (value_group_ != GroupHooks::kNone) hooks.unshard(value_group_, GroupHooks::kNone);
    head_->score(compute, x, targets, temperature, scores);
}

void Decoder::loss(const Compute& compute, std::span<const std::int32_t> tokens, const Targets& targets,
                   GroupHooks& hooks, TargetLoss& loss) const {
    require(!loss.trains_values() || value_group_ != GroupHooks::kNone, "the model has no value head");
    std::vector<DecoderLayer::Saved> saved(layers_.size());
    Tensor dx;
    {
        const Tensor x = forward_layers(compute, tokens, hooks, Pass::training, saved);
        hooks.begin_gradients(head_group_);
        if (loss.trains_values()) {
            hooks.unshard(value_group_, GroupHooks::kNone);
            hooks.begin_gradients(value_group_);
        }
        dx = head_->loss(compute, x, targets, loss);
        if (loss.trains_values()) hooks.after_backward(value_group_);
    }
    if (!tied_) hooks.after_backward(head_group_);
    for (std::size_t layer = layers_.size(); layer-- > 0;) {
        hooks.unshard(layer_group(layer), layer > 0 ? layer_group(layer - 1) : GroupHooks::kNone);
        hooks.begin_gradients(layer_group(layer));
        layers_[layer].recompute(compute, saved[layer], checkpointing_);
        dx = layers_[layer].backward(compute, dx, std::move(saved[layer]));
        hooks.after_backward(layer_group(layer));
    }
    if (!tied_) hooks.begin_gradients(kEmbeddingGroup);
    embedding_->backward(compute, dx, tokens);
    hooks.after_backward(kEmbeddingGroup);
}

}  // namespace tandem::trainer
