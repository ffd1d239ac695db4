// The whole model of Qwen3's shape: embedding, layers, final norm, head. Owns the parameters' records (not
// their memory) and says which of them form a group.
#pragma once

#include <memory>
#include <vector>

#include "common/model/model_config.h"
#include "trainer/nn/decoder_layer.h"
#include "trainer/nn/embedding.h"
#include "trainer/nn/group_hooks.h"
#include "trainer/nn/lm_head.h"

namespace tandem::trainer {

class Decoder {
  public:
    Decoder(const model::ModelConfig& config, std::int64_t logits_chunk_rows,
            Checkpointing checkpointing = Checkpointing::none);

    std::vector<Parameter>& parameters() { return parameters_; }  // in the order of model::parameter_specs
    // Indices into parameters(), in the order of first use. Tied: [root, layers…] with root = embedding and
    // final norm; untied: [embedding, layers…, root] with root = final norm and head.
    const std::vector<std::vector<int>>& groups() const { return groups_; }

    void logprobs(const Compute& compute, std::span<const std::int32_t> tokens, const Targets& targets,
                  GroupHooks& hooks, std::span<float> logprobs) const;
    // Forward, loss, backward. Gradients are complete when the hooks say so.
    void loss(const Compute& compute, std::span<const std::int32_t> tokens, const Targets& targets,
              GroupHooks& hooks, const TargetLoss& loss) const;

  private:
    enum class Pass { inference, training };
    // Hidden states after the last layer. saved is filled when training.
    Tensor forward_layers(const Compute& compute, std::span<const std::int32_t> tokens, GroupHooks& hooks,
                          Pass pass, std::vector<DecoderLayer::Saved>& saved) const;
    int layer_group(std::size_t layer) const { return static_cast<int>(layer) + 1; }

    bool tied_;
    Checkpointing checkpointing_;
    int head_group_ = 0;
    std::vector<Parameter> parameters_;
    std::vector<std::vector<int>> groups_;
    std::unique_ptr<Embedding> embedding_;
    std::vector<DecoderLayer> layers_;
    std::unique_ptr<LmHead> head_;
};

}  // namespace tandem::trainer
