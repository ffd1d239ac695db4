// The parameters of the trained model, or of consecutive layers of it, and how they are grouped: gathered, resharded and
// reduced together. Without their memory.
#pragma once

#include <vector>

#include "common/model/model_config.h"
#include "trainer/nn/parameter.h"

namespace tandem::trainer {

inline constexpr const char* kValueHead = "value_head.weight";

// A stage: layers [first, end) by their number in the model, and whether the embedding comes before and the head behind them.
struct DecoderPart {
    int first_layer = 0;
    int end_layer = 0;
    bool embeds = true;
    bool heads = true;

    static DecoderPart whole(const model::ModelConfig& config) {
        return {0, static_cast<int>(config.num_hidden_layers), true, true};
    }
    int layers() const { return end_layer - first_layer; }
};

struct DecoderParameters {
    // As rank tp_rank of tp has them. Throws InvalidArgument where tp does not fit the model (tensor_cut.h).
    DecoderParameters(const model::ModelConfig& config, const DecoderPart& part, bool value_head, int tp = 1,
                      int tp_rank = 0);

    // In the order of model::parameter_specs; then the value head's, [1, hidden], where there is one. A head that is tied to
    // an embedding of another stage has the table, too.
    std::vector<Parameter> all;
    // Indices into `all`, in the order of first use: [embedding, layers…, root] with root = final norm and head. Tied to the
    // embedding of this part: [root, layers…] with root = embedding and final norm. A value head is one more.
    std::vector<std::vector<int>> groups;

    // Indices of groups; kNone (-1) where the part has none.
    static constexpr int kNone = -1;
    int embedding_group = kNone;
    int first_layer_group = 0;
    int head_group = kNone;
    int value_group = kNone;
};

}  // namespace tandem::trainer
