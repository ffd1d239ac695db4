// The passes of a stage: consecutive layers, before them the embedding and behind them the head, where the stage has those.
#pragma once

#include <vector>

#include "trainer/nn/decoder_layer.h"
#include "trainer/nn/embedding.h"
#include "trainer/nn/group_hooks.h"
#include "trainer/nn/lm_head.h"

namespace tandem::trainer {

// Hidden states are rows that TensorParallel keeps between blocks, [kept_rows, hidden], also between stages. A stage without
// embedding gets them from the one before and gives it their gradient.
class DecoderStage {
  public:
    struct Groups {  // of GroupHooks; kNone: not in this stage
        int embedding = GroupHooks::kNone;
        int first_layer = 0;  // the other layers' follow
        int head = GroupHooks::kNone;
        int value = GroupHooks::kNone;
        bool shared_table = false;  // embedding and head are of one group, though of two stages perhaps
    };
    // Embedding and head, null where the stage has none, must outlive this.
    DecoderStage(const Embedding* embedding, std::vector<DecoderLayer> layers, const LmHead* head,
                 Groups groups, Checkpointing checkpointing);

    bool embeds() const { return embedding_ != nullptr; }
    bool heads() const { return head_ != nullptr; }

    // What the backward of one micro-batch needs of the forward.
    struct Saved {
        std::vector<DecoderLayer::Saved> layers;
    };
    // Hidden states after the last layer. `x` is read by stages without embedding, `tokens` by the others. Without `saved`: of
    // inference.
    Tensor forward(const Compute& compute, std::span<const std::int32_t> tokens, Tensor x, GroupHooks& hooks,
                   Saved* saved) const;
    // The head's, of the hidden states after the last layer.
    void score(const Compute& compute, Tensor x, const Targets& targets, GroupHooks& hooks, float temperature,
               const TargetScores& scores) const;
    // Forward, loss and backward of the head; returns dx.
    Tensor loss(const Compute& compute, Tensor x, const Targets& targets, GroupHooks& hooks,
                TargetLoss& loss) const;
    // From the gradient of forward()'s result to that of its `x`; undefined where there is an embedding. Gradients are
    // complete when the hooks say so.
    Tensor backward(const Compute& compute, std::span<const std::int32_t> tokens, Tensor dx,
                    GroupHooks& hooks, Saved saved) const;

    // The same in two halves. The first makes dx and keeps what the second needs, all activations of the layers among it;
    // `tokens` must live until then. The second may come at any time after it, behind other micro-batches' passes.
    struct WeightWork {
        std::vector<LaterGradients> groups;  // [layer], and the embedding's
    };
    Tensor backward_input(const Compute& compute, std::span<const std::int32_t> tokens, Tensor dx,
                          GroupHooks& hooks, Saved saved, WeightWork& later) const;
    void backward_weight(GroupHooks& hooks, WeightWork work) const;

  private:
    int layer_group(std::size_t layer) const { return groups_.first_layer + static_cast<int>(layer); }

    const Embedding* embedding_;
    std::vector<DecoderLayer> layers_;
    const LmHead* head_;
    Groups groups_;
    Checkpointing checkpointing_;
};

}  // namespace tandem::trainer
