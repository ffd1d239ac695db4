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

std::vector<DecoderPart> parts_of(const model::ModelConfig& config, const DecoderOptions& options) {
    return options.parts.empty() ? std::vector{DecoderPart::whole(config)} : options.parts;
}

}  // namespace

Decoder::Decoder(const model::ModelConfig& config, const DecoderOptions& options,
                 const TensorParallel& tensor)
    : parameters_(config, parts_of(config, options), options.value_head, tensor.size(),
                  tensor.group().rank()) {
    const ByRole by_role(parameters_.all);
    const CutVocabulary vocabulary(tensor.group(), config.vocab_size, options.loss_parallel);
    if (parameters_.embedding_group != GroupHooks::kNone)
        embedding_ = std::make_unique<Embedding>(by_role.at(-1, Role::embedding), vocabulary);
    if (parameters_.head_group != GroupHooks::kNone) {
        Parameter& table = by_role.at(-1, config.tie_word_embeddings ? Role::embedding : Role::head);
        head_ = std::make_unique<LmHead>(RmsNorm(by_role.at(-1, Role::norm), config.rms_norm_eps), table,
                                         vocabulary, options.value_head ? &parameters_.all.back() : nullptr,
                                         options.logits_chunk_rows);
    }
    const model::RopeFrequencies frequencies = config.rope_frequencies();
    const ops::RopeTable rope(frequencies.inverse, frequencies.attention_factor);
    const std::vector<DecoderPart> parts = parts_of(config, options);
    for (std::size_t i = 0; i < parts.size(); ++i) {
        std::vector<DecoderLayer> layers;
        for (int layer = parts[i].first_layer; layer < parts[i].end_layer; ++layer)
            layers.push_back(make_layer(config, rope, by_role, layer, tensor.first()));
        const DecoderStage::Groups groups{parameters_.embedding_group, parameters_.first_layer_groups[i],
                                          parameters_.head_group, parameters_.value_group,
                                          parameters_.embedding_group == parameters_.head_group};
        stages_.emplace_back(parts[i].embeds ? embedding_.get() : nullptr, std::move(layers),
                             parts[i].heads ? head_.get() : nullptr, groups, options.checkpointing);
    }
}

}  // namespace tandem::trainer
