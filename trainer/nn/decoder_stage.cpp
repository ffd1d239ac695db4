#include "trainer/nn/decoder_stage.h"

#include <utility>

#include "common/error.h"

namespace tandem::trainer {

DecoderStage::DecoderStage(const Embedding* embedding, std::vector<DecoderLayer> layers, const LmHead* head,
                           Groups groups, Checkpointing checkpointing)
    : embedding_(embedding),
      layers_(std::move(layers)),
      head_(head),
      groups_(groups),
      checkpointing_(checkpointing) {}

Tensor DecoderStage::forward(const Compute& compute, std::span<const std::int32_t> tokens, Tensor x,
                             GroupHooks& hooks, Saved* saved) const {
    const int behind = head_ == nullptr || (embedding_ != nullptr && groups_.shared_table)
                           ? GroupHooks::kNone
                           : groups_.head;  // still to be gathered
    if (embedding_ != nullptr) {
        hooks.unshard(groups_.embedding, layers_.empty() ? behind : layer_group(0));
        x = compute.tensor.sum(compute.stream, embedding_->forward(compute, tokens));
        if (!groups_.shared_table) hooks.after_forward(groups_.embedding);
    }
    if (saved != nullptr) saved->layers.resize(layers_.size());
    for (std::size_t layer = 0; layer < layers_.size(); ++layer) {
        const bool last = layer + 1 == layers_.size();
        hooks.unshard(layer_group(layer), last ? behind : layer_group(layer + 1));
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

void DecoderStage::score(const Compute& compute, Tensor x, const Targets& targets, GroupHooks& hooks,
                         float temperature, const TargetScores& scores) const {
    hooks.unshard(groups_.head, GroupHooks::kNone);
    x = compute.tensor.all_rows(compute.stream, x, std::ssize(compute.positions));
    if (groups_.value != GroupHooks::kNone) hooks.unshard(groups_.value, GroupHooks::kNone);
    head_->score(compute, x, targets, temperature, scores);
}

Tensor DecoderStage::loss(const Compute& compute, Tensor x, const Targets& targets, GroupHooks& hooks,
                          TargetLoss& loss) const {
    require(!loss.trains_values() || groups_.value != GroupHooks::kNone, "the model has no value head");
    hooks.unshard(groups_.head, GroupHooks::kNone);
    x = compute.tensor.all_rows(compute.stream, x, std::ssize(compute.positions));
    hooks.begin_gradients(groups_.head);
    if (loss.trains_values()) {
        hooks.unshard(groups_.value, GroupHooks::kNone);
        hooks.begin_gradients(groups_.value);
    }
    Tensor dx = compute.tensor.sum(compute.stream, head_->loss(compute, x, targets, loss));
    if (loss.trains_values()) hooks.after_backward(groups_.value);
    if (!groups_.shared_table) hooks.after_backward(groups_.head);
    return dx;
}

Tensor DecoderStage::backward(const Compute& compute, std::span<const std::int32_t> tokens, Tensor dx,
                              GroupHooks& hooks, Saved saved) const {
    for (std::size_t layer = layers_.size(); layer-- > 0;) {
        hooks.unshard(layer_group(layer), layer > 0 ? layer_group(layer - 1) : GroupHooks::kNone);
        hooks.begin_gradients(layer_group(layer));
        layers_[layer].recompute(compute, saved.layers[layer], checkpointing_);
        dx = layers_[layer].backward(compute, dx, std::move(saved.layers[layer]));
        hooks.after_backward(layer_group(layer));
    }
    if (embedding_ == nullptr) return dx;
    hooks.begin_gradients(groups_.embedding);
    embedding_->backward(compute, compute.tensor.all_rows(compute.stream, dx, std::ssize(tokens)), tokens);
    hooks.after_backward(groups_.embedding);
    return {};
}

Tensor DecoderStage::backward_input(const Compute& compute, std::span<const std::int32_t> tokens, Tensor dx,
                                    GroupHooks& hooks, Saved saved, WeightWork& later) const {
    later.groups.resize(layers_.size() + 1);
    Compute noted = compute;
    for (std::size_t layer = layers_.size(); layer-- > 0;) {
        noted.later = &later.groups[layer];
        hooks.unshard(layer_group(layer), layer > 0 ? layer_group(layer - 1) : GroupHooks::kNone);
        layers_[layer].recompute(noted, saved.layers[layer], checkpointing_);
        dx = layers_[layer].backward(noted, dx, std::move(saved.layers[layer]));
        hooks.after_forward(layer_group(layer));
    }
    if (embedding_ == nullptr) return dx;
    const Tensor rows = compute.tensor.all_rows(compute.stream, dx, std::ssize(tokens));
    later.groups.back().add([this, compute, rows, tokens] { embedding_->backward(compute, rows, tokens); });
    return {};
}

void DecoderStage::backward_weight(GroupHooks& hooks, WeightWork work) const {
    const auto run = [&](int group, LaterGradients& gradients) {
        hooks.begin_gradients(group);
        gradients.run();
        hooks.after_backward(group);
    };
    for (std::size_t layer = layers_.size(); layer-- > 0;) run(layer_group(layer), work.groups[layer]);
    if (embedding_ != nullptr) run(groups_.embedding, work.groups.back());
}

}  // namespace tandem::trainer
