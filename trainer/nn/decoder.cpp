#include "trainer/nn/decoder.h"

#include <map>
#include <tuple>
#include <utility>

namespace tandem::trainer {
namespace {

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
                        const ByRole& parameters, int layer, bool first_of_tensor) {
    const auto linear = [&](Role role) {
        Parameter& weight = parameters.at(layer, role);
        const bool adds_bias = weight.cut != model::Cut::row || first_of_tensor;
        return Linear(weight, parameters.find(layer, role, true), adds_bias);
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

Decoder::Decoder(const model::ModelConfig& config, const DecoderOptions& options,
                 const TensorParallel& tensor)
    : checkpointing_(options.checkpointing),
      parameters_(config, options.part.value_or(DecoderPart::whole(config)), options.value_head,
                  tensor.size(), tensor.group().rank()) {
    const DecoderPart part = options.part.value_or(DecoderPart::whole(config));
    const ByRole by_role(parameters_.all);
    const CutVocabulary vocabulary(tensor.group(), config.vocab_size, options.loss_parallel);
    if (part.embeds) embedding_ = std::make_unique<Embedding>(by_role.at(-1, Role::embedding), vocabulary);
    const model::RopeFrequencies frequencies = config.rope_frequencies();
    const ops::RopeTable rope(frequencies.inverse, frequencies.attention_factor);
    for (int layer = part.first_layer; layer < part.end_layer; ++layer)
        layers_.push_back(make_layer(config, rope, by_role, layer, tensor.first()));
    if (!part.heads) return;
    Parameter& table = by_role.at(-1, config.tie_word_embeddings ? Role::embedding : Role::head);
    head_ = std::make_unique<LmHead>(RmsNorm(by_role.at(-1, Role::norm), config.rms_norm_eps), table,
                                     vocabulary, options.value_head ? &parameters_.all.back() : nullptr,
                                     options.logits_chunk_rows);
}

Tensor Decoder::forward(const Compute& compute, std::span<const std::int32_t> tokens, Tensor x,
                        GroupHooks& hooks, Saved* saved) const {
    const int head_group =
        shares_table() ? GroupHooks::kNone : parameters_.head_group;  // still to be gathered
    if (embedding_) {
        hooks.unshard(parameters_.embedding_group, layers_.empty() ? head_group : layer_group(0));
        x = compute.tensor.sum(compute.stream, embedding_->forward(compute, tokens));
        if (!shares_table()) hooks.after_forward(parameters_.embedding_group);
    }
    if (saved != nullptr) saved->layers.resize(layers_.size());
    for (std::size_t layer = 0; layer < layers_.size(); ++layer) {
        const bool last = layer + 1 == layers_.size();
        hooks.unshard(layer_group(layer), last ? head_group : layer_group(layer + 1));
        if (saved != nullptr) {
            x = layers_[layer].forward(compute, x, saved->layers[layer]);
            layers_[layer].drop(saved->layers[layer], checkpointing_);
        } else {
            DecoderLayer::Saved dropped;
            x = layers_[layer].forward(compute, x, dropped);
        }
        // The backward starts with the last layer: it stays.
        if (!last || saved == nullptr) hooks.after_forward(layer_group(layer));
    }
    return x;
}

void Decoder::score(const Compute& compute, Tensor x, const Targets& targets, GroupHooks& hooks,
                    float temperature, const TargetScores& scores) const {
    hooks.unshard(parameters_.head_group, GroupHooks::kNone);
    x = compute.tensor.all_rows(compute.stream, x, std::ssize(compute.positions));
    if (parameters_.value_group != GroupHooks::kNone)
        hooks.unshard(parameters_.value_group, GroupHooks::kNone);
    head_->score(compute, x, targets, temperature, scores);
}

Tensor Decoder::loss(const Compute& compute, Tensor x, const Targets& targets, GroupHooks& hooks,
                     TargetLoss& loss) const {
    const int value_group = parameters_.value_group;
    require(!loss.trains_values() || value_group != GroupHooks::kNone, "the model has no value head");
    hooks.unshard(parameters_.head_group, GroupHooks::kNone);
    x = compute.tensor.all_rows(compute.stream, x, std::ssize(compute.positions));
    hooks.begin_gradients(parameters_.head_group);
    if (loss.trains_values()) {
        hooks.unshard(value_group, GroupHooks::kNone);
        hooks.begin_gradients(value_group);
    }
    Tensor dx = compute.tensor.sum(compute.stream, head_->loss(compute, x, targets, loss));
    if (loss.trains_values()) hooks.after_backward(value_group);
    if (!shares_table()) hooks.after_backward(parameters_.head_group);
    return dx;
}

Tensor Decoder::backward(const Compute& compute, std::span<const std::int32_t> tokens, Tensor dx,
                         GroupHooks& hooks, Saved saved) const {
    for (std::size_t layer = layers_.size(); layer-- > 0;) {
        hooks.unshard(layer_group(layer), layer > 0 ? layer_group(layer - 1) : GroupHooks::kNone);
        hooks.begin_gradients(layer_group(layer));
        layers_[layer].recompute(compute, saved.layers[layer], checkpointing_);
        dx = layers_[layer].backward(compute, dx, std::move(saved.layers[layer]));
        hooks.after_backward(layer_group(layer));
    }
    if (!embedding_) return dx;
    if (!shares_table()) hooks.begin_gradients(parameters_.embedding_group);
    embedding_->backward(compute, compute.tensor.all_rows(compute.stream, dx, std::ssize(tokens)), tokens);
    hooks.after_backward(parameters_.embedding_group);
    return {};
}

}  // namespace tandem::trainer
