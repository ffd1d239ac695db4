// The whole model: embedding, layers, final norm, head; of each, this rank's part of the tp axis's cut. Owns the parameters'
// records (not their memory) and says which of them form a group.
#pragma once

#include <memory>
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
    bool loss_parallel = true;  // see cut_vocabulary.h
};

class Decoder {
  public:
    // `tensor` must outlive this. Throws InvalidArgument where its size does not fit the model (tensor_cut.h).
    Decoder(const model::ModelConfig& config, const DecoderOptions& options, const TensorParallel& tensor);

    std::vector<Parameter>& parameters() { return parameters_.all; }
    const std::vector<Parameter>& parameters() const { return parameters_.all; }
    const std::vector<std::vector<int>>& groups() const { return parameters_.groups; }

    void score(const Compute& compute, std::span<const std::int32_t> tokens, const Targets& targets,
               GroupHooks& hooks, float temperature, const TargetScores& scores) const;
    // Forward, loss, backward. Gradients are complete when the hooks say so.
    void loss(const Compute& compute, std::span<const std::int32_t> tokens, const Targets& targets,
              GroupHooks& hooks, TargetLoss& loss) const;

  private:
    enum class Pass { inference, training };
    // Hidden states after the last layer, all rows. saved is filled when training.
    Tensor forward_layers(const Compute& compute, std::span<const std::int32_t> tokens, GroupHooks& hooks,
                          Pass pass, std::vector<DecoderLayer::Saved>& saved) const;
    int layer_group(std::size_t layer) const { return static_cast<int>(layer) + 1; }

    bool tied_;
    Checkpointing checkpointing_;
    int head_group_ = 0;
    int value_group_ = GroupHooks::kNone;
    DecoderParameters parameters_;
    std::unique_ptr<Embedding> embedding_;
    std::vector<DecoderLayer> layers_;
    std::unique_ptr<LmHead> head_;
};

}  // namespace tandem::trainer
