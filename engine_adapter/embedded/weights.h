// A model's weights as the engine reads them: one tensor a parameter. They lie in memory of its own, at
// addresses that never change, so that a receiver can write new versions straight into it; or in memory that
// a trainer filled (point).
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/device/stream.h"
#include "common/model/model_config.h"
#include "common/model/parameters.h"
#include "common/tensor/paged_tensor.h"
#include "engine_adapter/receiver/weight_target.h"

namespace tandem::engine {

// A layer's, with the shapes of model::parameter_specs; what the model lacks is undefined.
class LayerWeights {
  public:
    const Tensor& operator[](model::Role role) const { return weights_[static_cast<std::size_t>(role)]; }
    const Tensor& bias(model::Role role) const { return biases_[static_cast<std::size_t>(role)]; }
    Tensor& at(model::Role role, bool bias) {
        return (bias ? biases_ : weights_)[static_cast<std::size_t>(role)];
    }

  private:
    std::array<Tensor, model::kRoles> weights_, biases_;
};

class ModelWeights {
  public:
    // Zeros on the stream's device, in its order.
    ModelWeights(const model::ModelConfig& config, DType dtype, Stream& stream);
    ModelWeights(const ModelWeights&) = delete;
    ModelWeights& operator=(const ModelWeights&) = delete;

    // Fills every tensor from a Hugging Face directory, cast to the engine's dtype. Throws ConfigError naming
    // file and tensor: missing, unknown, wrong shape, not a float dtype. Blocks until `stream` is past it.
    void load(const model::ModelConfig& config, const std::string& directory, Stream& stream);

    DType dtype() const { return dtype_; }
    Device device() const { return device_; }
    const Tensor& embedding() const { return embedding_; }
    const Tensor& head() const { return head_; }  // the embedding when tied
    const Tensor& norm() const { return norm_; }
    const LayerWeights& layer(std::size_t index) const { return layers_[index]; }
    std::size_t layers() const { return layers_.size(); }
    // Counts changes of the weights, from 1: call changed() after writing to them.
    std::uint64_t contents() const { return contents_; }
    void changed() { ++contents_; }
    // Release the pages of the engine's own memory to the system, and restore them at the same addresses:
    // what they held is lost, and the weights may not be used while they are released. release() throws
    // InvalidArgument when the weights are read elsewhere, or on a GPU without virtual memory management.
    void release();
    void restore() { memory_.restore(); }
    bool released() const { return !memory_.has_pages(); }
    // The engine's own memory, in the order of model::parameter_specs.
    const std::vector<WeightSlot>& slots() const { return slots_; }
    // The same list with the memory that is read now.
    std::vector<WeightSlot> current() const;
    // Reads tensor i at memory[i] from here on; `owner` keeps that memory alive until the next call. Nothing
    // may read the weights during the call. Throws InvalidArgument when a span is smaller than its tensor.
    void point(const std::vector<Span>& memory, std::shared_ptr<const void> owner);

  private:
    Tensor& place_of(const model::ParameterSpec& spec);

    DType dtype_;
    Device device_;
    bool tied_;
    Tensor embedding_, norm_, head_;
    std::vector<LayerWeights> layers_;
    PagedTensor memory_;           // of all, side by side
    std::vector<Tensor> tensors_;  // own: parts of memory_
    std::vector<WeightSlot> slots_;
    std::vector<Tensor*> places_;  // where tensor i is read: a member of this or of a layer
    std::shared_ptr<const void> owner_;
    std::uint64_t contents_ = 1;
};

}  // namespace tandem::engine
