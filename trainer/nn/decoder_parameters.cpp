#include "trainer/nn/decoder_parameters.h"

#include <algorithm>
#include <utility>

#include "common/sharding/tensor_cut.h"

namespace tandem::trainer {

std::vector<model::ParameterSpec> decoder_specs(const model::ModelConfig& config, bool value_head) {
    std::vector<model::ParameterSpec> specs = model::parameter_specs(config);
    if (value_head) specs.push_back({kValueHead, {1, config.hidden_size}});
    return specs;
}

DecoderParameters::DecoderParameters(const model::ModelConfig& config, const std::vector<DecoderPart>& parts,
                                     bool value_head, int tp, int tp_rank) {
    check_tensor_degree(config, tp);
    bool embeds = false, heads = false;
    int count = 0;
    for (const DecoderPart& part : parts) {
        require(0 <= part.first_layer && part.first_layer <= part.end_layer &&
                    part.end_layer <= config.num_hidden_layers,
                "layers {} to {} of a model of {}", part.first_layer, part.end_layer,
                config.num_hidden_layers);
        embeds = embeds || part.embeds;
        heads = heads || part.heads;
    }
    if (embeds) embedding_group = count++;
    for (const DecoderPart& part : parts) {
        first_layer_groups.push_back(count);
        count += part.layers();
    }
    const bool tied = config.tie_word_embeddings;
    if (heads) head_group = tied && embeds ? embedding_group : count++;
    if (heads && value_head) value_group = count++;
    groups.resize(static_cast<std::size_t>(count));

    const auto group_of = [&](const model::ParameterSpec& spec) {
        if (spec.name == kValueHead) return value_group;
        if (spec.layer < 0) {
            const bool of_embedding = spec.role == model::Role::embedding && embeds;
            return of_embedding ? embedding_group : head_group;
        }
        for (std::size_t i = 0; i < parts.size(); ++i) {
            if (parts[i].holds(spec, tied)) return first_layer_groups[i] + spec.layer - parts[i].first_layer;
        }
        return kNone;
    };
    for (model::ParameterSpec& spec : decoder_specs(config, value_head)) {
        const bool here = std::any_of(parts.begin(), parts.end(),
                                      [&](const DecoderPart& part) { return part.holds(spec, tied); });
        if (!here) continue;
        groups[static_cast<std::size_t>(group_of(spec))].push_back(static_cast<int>(all.size()));
        Shape shape = cut_shape(spec, tp, tp_rank);
        all.push_back({std::move(spec), std::move(shape), {}, {}});
    }
}

}  // namespace tandem::trainer
