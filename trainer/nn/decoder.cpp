#include "trainer/nn/decoder.h"

#include <map>
#include <tuple>
#include <utility>

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
    : tied_(config.tie_word_embeddings),
      checkpointing_(options.checkpointing),
      parameters_(config, options.value_head, tensor.size(), tensor.group().rank()) {
    const auto layers = static_cast<int>(config.num_hidden_layers);
    head_group_ = tied_ ? kEmbeddingGroup : layers + 1;
    if (options.value_head) value_group_ = static_cast<int>(groups().size()) - 1;
    const ByRole by_role(parameters_.all);
    Parameter& table = by_role.at(-1, Role::embedding);
    const CutVocabulary vocabulary(tensor.group(), config.vocab_size, options.loss_parallel);
    embedding_ = std::make_unique<Embedding>(table, vocabulary);
    const model::RopeFrequencies frequencies = config.rope_frequencies();
    const ops::RopeTable rope(frequencies.inverse, frequencies.attention_factor);
    for (int layer = 0; layer < layers; ++layer)
        layers_.push_back(make_layer(config, rope, by_role, layer, tensor.first()));
    head_ = std::make_unique<LmHead>(
        RmsNorm(by_role.at(-1, Role::norm), config.rms_norm_eps), tied_ ? table : by_role.at(-1, Role::head),
        vocabulary, options.value_head ? &parameters_.all.back() : nullptr, options.logits_chunk_rows);
}

Tensor Decoder::forward_layers(const Compute& compute, std::span<const std::int32_t> tokens,
                               GroupHooks& hooks, Pass pass, std::vector<DecoderLayer::Saved>& saved) const {
    hooks.unshard(kEmbeddingGroup, layer_group(0));
    Tensor x = compute.tensor.sum(compute.stream, embedding_->forward(compute, tokens));
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
    return compute.tensor.all_rows(compute.stream, x, std::ssize(tokens));
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
        dx = compute.tensor.sum(compute.stream, head_->loss(compute, x, targets, loss));
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
    embedding_->backward(compute, compute.tensor.all_rows(compute.stream, dx, std::ssize(tokens)), tokens);
    hooks.after_backward(kEmbeddingGroup);
}

}  // namespace tandem::trainer
