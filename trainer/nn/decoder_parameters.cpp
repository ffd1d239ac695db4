#include "trainer/nn/decoder_parameters.h"

#include <utility>

#include "common/sharding/tensor_cut.h"

namespace tandem::trainer {

DecoderParameters::DecoderParameters(const model::ModelConfig& config, bool value_head, int tp, int tp_rank) {
    check_tensor_degree(config, tp);
    const auto layers = static_cast<int>(config.num_hidden_layers);
    const int head_group = config.tie_word_embeddings ? 0 : layers + 1;
    groups.resize(static_cast<std::size_t>(config.tie_word_embeddings ? layers + 1 : layers + 2));
    for (model::ParameterSpec& spec : model::parameter_specs(config)) {
        const int group = spec.layer >= 0                       ? spec.layer + 1
                          : spec.role == model::Role::embedding ? 0
                                                                : head_group;
        groups[static_cast<std::size_t>(group)].push_back(static_cast<int>(all.size()));
        Shape shape = cut_shape(spec, tp, tp_rank);
        all.push_back({std::move(spec), std::move(shape), {}, {}});
    }
    if (!value_head) return;
    const Shape shape{1, config.hidden_size};
    groups.push_back({static_cast<int>(all.size())});
    all.push_back({{kValueHead, shape}, shape, {}, {}});
}

}  // namespace tandem::trainer
