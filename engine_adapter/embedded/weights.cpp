#include "engine_adapter/embedded/weights.h"

#include "common/align.h"
#include "common/device/devices.h"
#include "common/error.h"
#include "common/log.h"
#include "common/model/check_weights.h"
#include "common/ops/elementwise.h"

namespace tandem::engine {

namespace {

constexpr std::int64_t kAlignElements = 128;  // 256 bytes of bfloat16

std::int64_t room_for(const Shape& shape) {
    return round_up(numel(shape), kAlignElements);
}

// The elements of all parameters.
std::int64_t elements_of(const model::ModelConfig& config) {
    std::int64_t elements = 0;
    for (const model::ParameterSpec& spec : model::parameter_specs(config)) elements += room_for(spec.shape);
    return elements;
}

}  // namespace

ModelWeights::ModelWeights(const model::ModelConfig& config, DType dtype, Stream& stream)
    : dtype_(dtype),
      device_(stream.device()),
      tied_(config.tie_word_embeddings),
      layers_(static_cast<std::size_t>(config.num_hidden_layers)),
      memory_(PagedTensor::going_if_possible({elements_of(config)}, dtype, "engine.weights", device_)) {
    fill_zero(stream, memory_.tensor().span());
    std::int64_t at = 0;
    for (const model::ParameterSpec& spec : model::parameter_specs(config)) {
        const Tensor tensor = memory_.tensor().rows(at, numel(spec.shape)).reshape(spec.shape);
        at += room_for(spec.shape);
        tensors_.push_back(tensor);
        slots_.push_back({{spec.name, spec.shape, dtype}, tensor.span()});
        places_.push_back(&place_of(spec));
        *places_.back() = tensor;
    }
    if (tied_) head_ = embedding_;
}

Tensor& ModelWeights::place_of(const model::ParameterSpec& spec) {
    if (spec.layer >= 0) return layers_[static_cast<std::size_t>(spec.layer)].at(spec.role, spec.bias);
    switch (spec.role) {
        case model::Role::embedding:
            return embedding_;
        case model::Role::norm:
            return norm_;
        case model::Role::head:
            return head_;
        default:
            enforce(false, "a parameter that the engine does not know: {}", spec.name);
    }
    return head_;
}

void ModelWeights::point(const std::vector<Span>& memory, std::shared_ptr<const void> owner) {
    enforce(memory.size() == slots_.size(), "{} places for {} tensors", memory.size(), slots_.size());
    std::vector<Tensor> there;
    for (std::size_t i = 0; i < slots_.size(); ++i) {
        const bool own = memory[i].data == slots_[i].memory.data;
        there.push_back(own ? tensors_[i] : Tensor::borrow(memory[i], slots_[i].info.shape, dtype_, device_));
    }
    for (std::size_t i = 0; i < slots_.size(); ++i) *places_[i] = there[i];
    if (tied_) head_ = embedding_;
    owner_ = std::move(owner);
    changed();
}

void ModelWeights::release() {
    for (std::size_t i = 0; i < slots_.size(); ++i) {
        enforce(places_[i]->raw() == slots_[i].memory.data,
                "the weights cannot be released: the engine reads them in memory that is not its own");
    }
    memory_.release();
}

std::vector<WeightSlot> ModelWeights::current() const {
    std::vector<WeightSlot> result = slots_;
    for (std::size_t i = 0; i < result.size(); ++i) result[i].memory = places_[i]->span();
    return result;
}

void ModelWeights::load(const model::ModelConfig& config, const std::string& directory, Stream& stream) {
    const auto files = model::Safetensors::open(directory);
    for (const std::string& name : model::check_weights(files, config)) {
        log_info("{}: {} is left unused: it says nothing new", files.file(name), name);
    }
    for (std::size_t i = 0; i < slots_.size(); ++i) {
        Tensor from = files.tensor(slots_[i].info.name);
        if (from.device() != device_) from = from.to(stream, device_, "engine.load");
        ops::cast(stream, from, tensors_[i]);
        stream.synchronize();
        files.release(slots_[i].info.name);
    }
    files.require_unchanged();
    changed();
}

}  // namespace tandem::engine
