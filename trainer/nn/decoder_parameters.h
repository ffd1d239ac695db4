// The parameters of the trained model and how they are grouped: gathered, resharded and reduced together. Without their memory.
#pragma once

#include <vector>

#include "common/model/model_config.h"
#include "trainer/nn/parameter.h"

namespace tandem::trainer {

inline constexpr const char* kValueHead = "value_head.weight";

struct DecoderParameters {
    // As rank tp_rank of tp has them. Throws InvalidArgument where tp does not fit the model (tensor_cut.h).
    DecoderParameters(const model::ModelConfig& config, bool value_head, int tp = 1, int tp_rank = 0);

    // In the order of model::parameter_specs; then the value head's, [1, hidden], where there is one.
    std::vector<Parameter> all;
    // Indices into `all`, in the order of first use. Tied: [root, layers…] with root = embedding and
    // final norm; untied: [embedding, layers…, root] with root = final norm and head. A value head is one
    // more.
    std::vector<std::vector<int>> groups;
};

}  // namespace tandem::trainer
