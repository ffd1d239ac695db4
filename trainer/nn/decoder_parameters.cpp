#include "trainer/nn/decoder_parameters.h"

#include <utility>

#include "common/sharding/tensor_cut.h"

namespace tandem::trainer {

DecoderParameters::DecoderParameters(const model::ModelConfig& config, const DecoderPart& part,
                                     bool value_head, int tp, int tp_rank) {
    check_tensor_degree(config, tp);
    require(0 <= part.first_layer && part.first_layer <= part.end_layer &&
                part.end_layer <= config.num_hidden_layers,
            "layers {} to {} of a model of {}", part.first_layer, part.end_layer, config.num_hidden_layers);
    const bool tied = config.tie_word_embeddings;
    if (part.embeds) embedding_group = 0;
    first_layer_group = part.embeds ? 1 : 0;
    int count = first_layer_group + part.layers();
    if (part.heads) head_group = tied && part.embeds ? embedding_group : count++;
    if (part.heads && value_head) value_group = count++;
    groups.resize(static_cast<std::size_t>(count));

    const auto group_of = [&](const model::ParameterSpec& spec) {
        if (spec.layer >= 0) {
            const bool here = part.first_layer <= spec.layer && spec.layer < part.end_layer;
            return here ? first_layer_group + spec.layer - part.first_layer : kNone;
        }
        if (spec.role != model::Role::embedding) return head_group;
        return part.embeds ? embedding_group : tied ? head_group : kNone;
    };
    for (model::ParameterSpec& spec : model::parameter_specs(config)) {
        const int group = group_of(spec);
        if (group == kNone) continue;
        groups[static_cast<std::size_t>(group)].push_back(static_cast<int>(all.size()));
        Shape shape = cut_shape(spec, tp, tp_rank);
        all.push_back({std::move(spec), std::move(shape), {}, {}});
    }
    if (value_group == kNone) return;
    const Shape shape{1, config.hidden_size};
    groups.back().push_back(static_cast<int>(all.size()));
    all.push_back({{kValueHead, shape}, shape, {}, {}});
}

}  // namespace tandem::trainer
