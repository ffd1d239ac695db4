// The engine's copy of a model's weights: one tensor a parameter, at an address that never changes, so that a
// receiver may lay new versions straight into it.
#pragma once

#include <string>
#include <vector>

#include "common/model/model_config.h"
#include "common/tensor/tensor.h"
#include "engine_adapter/receiver/weight_target.h"

namespace tandem::engine {

struct LayerWeights {
    Tensor input_norm;                     // [hidden]
    Tensor q_proj, k_proj, v_proj;         // [heads * head_dim, hidden], [kv_heads * head_dim, hidden] twice
    Tensor q_norm, k_norm;                 // [head_dim]; undefined without qk-norm
    Tensor o_proj;                         // [hidden, heads * head_dim]
    Tensor post_norm;                      // [hidden]
    Tensor gate_proj, up_proj, down_proj;  // [ffn, hidden] twice, [hidden, ffn]
};

class ModelWeights {
  public:
    ModelWeights(const model::ModelConfig& config, DType dtype);  // zeros

    // Fills every tensor from a Hugging Face directory, cast to the engine's dtype. Throws ConfigError naming
    // file and tensor: missing, unknown, wrong shape, not a float dtype.
    void load(const std::string& directory);

    DType dtype() const { return dtype_; }
    const Tensor& embedding() const { return embedding_; }
    const Tensor& head() const { return head_; }  // the embedding when tied
    const Tensor& norm() const { return norm_; }
    const LayerWeights& layer(std::size_t index) const { return layers_[index]; }
    const std::vector<WeightSlot>& slots() const { return slots_; }  // in the order of model::parameter_specs

  private:
    void bind(const std::string& suffix, int layer, const Tensor& tensor);

    DType dtype_;
    bool tied_;
    Tensor embedding_, norm_, head_;
    std::vector<LayerWeights> layers_;
    std::vector<Tensor> tensors_;
    std::vector<WeightSlot> slots_;
};

}  // namespace tandem::engine
