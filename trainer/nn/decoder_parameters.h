// The parameters of the trained model, or of some stages of it, and how they are grouped: gathered, resharded and
// reduced together. Without their memory.
#pragma once

#include <vector>

#include "common/model/model_config.h"
#include "common/sharding/pipeline_stages.h"
#include "trainer/nn/parameter.h"

namespace tandem::trainer {

inline constexpr const char* kValueHead = "value_head.weight";

struct DecoderParameters {
    // `parts`: ascending, as rank tp_rank of tp has them. Throws InvalidArgument where tp does not fit the model (tensor_cut.h).
    DecoderParameters(const model::ModelConfig& config, const std::vector<DecoderPart>& parts,
                      bool value_head, int tp = 1, int tp_rank = 0);

    // In the order of model::parameter_specs; then the value head's, [1, hidden], where there is one. A head that is tied to
    // an embedding of other ranks has the table, too.
    std::vector<Parameter> all;
    // Indices into `all`, in the order of first use: [embedding, layers…, root] with root = final norm and head. Tied to the
    // embedding of these parts: [root, layers…] with root = embedding and final norm. A value head is one more.
    std::vector<std::vector<int>> groups;

    // Indices of groups; kNone (-1) where the parts have none.
    static constexpr int kNone = -1;
    int embedding_group = kNone;
    std::vector<int> first_layer_groups;  // [part]
    int head_group = kNone;
    int value_group = kNone;
};

// Of the whole model, without memory: in the order of model::parameter_specs, then the value head's.
std::vector<model::ParameterSpec> decoder_specs(const model::ModelConfig& config, bool value_head);

}  // namespace tandem::trainer
