// The model, or a stage of it: embedding, layers, final norm, head; of each, this rank's part of the tp axis's cut. Owns the
// parameters' records (not their memory) and says which of them form a group.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "common/model/model_config.h"
#include "trainer/nn/decoder_layer.h"
#include "trainer/nn/decoder_parameters.h"
#include "trainer/nn/embedding.h"
#include "trainer/nn/group_hooks.h"
#include "trainer/nn/lm_head.h"

namespace tandem::trainer {

struct DecoderOptions {
    std::int64_t logits_chunk_rows = 1024;
    Checkpointing checkpointing = Checkpointing::none;
    bool value_head = false;
    bool loss_parallel = true;             // see cut_vocabulary.h
    std::optional<DecoderPart> part = {};  // absent: all of the model
};

// Hidden states are rows that TensorParallel keeps between blocks, [kept_rows, hidden], also between stages. A stage without
// embedding gets them from the one before and gives it their gradient.
class Decoder {
  public:
    // `tensor` must outlive this. Throws InvalidArgument where its size does not fit the model (tensor_cut.h).
    Decoder(const model::ModelConfig& config, const DecoderOptions& options, const TensorParallel& tensor);

    std::vector<Parameter>& parameters() { return parameters_.all; }
    const std::vector<Parameter>& parameters() const { return parameters_.all; }
    const std::vector<std::vector<int>>& groups() const { return parameters_.groups; }

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

  private:
    bool shares_table() const { return parameters_.embedding_group == parameters_.head_group; }
    int layer_group(std::size_t layer) const {
        return parameters_.first_layer_group + static_cast<int>(layer);
    }

    Checkpointing checkpointing_;
    DecoderParameters parameters_;
    std::unique_ptr<Embedding> embedding_;  // null: not in this stage
    std::vector<DecoderLayer> layers_;
    std::unique_ptr<LmHead> head_;  // null: not in this stage
};

}  // namespace tandem::trainer
