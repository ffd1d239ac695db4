// How pipeline parallelism cuts a model: which layers each stage has, and what else.
#pragma once

#include <vector>

#include "common/model/parameters.h"

namespace tandem {

// A stage: layers [first, end) by their number in the model, and whether the embedding comes before and the head behind them.
struct DecoderPart {
    int first_layer = 0;
    int end_layer = 0;
    bool embeds = true;
    bool heads = true;

    static DecoderPart whole(const model::DecoderSizes& sizes) {
        return {0, static_cast<int>(sizes.num_hidden_layers), true, true};
    }
    int layers() const { return end_layer - first_layer; }
    // Whether a parameter is the stage's. A head that is tied to an embedding of another stage has the table, too.
    bool holds(const model::ParameterSpec& spec, bool tied) const;
    friend bool operator==(const DecoderPart&, const DecoderPart&) = default;
};

// As TorchTitan cuts: the embedding weighs as many layers as the first stage has fewer, the head as many as the last one has
// fewer; what does not divide goes to the first stages, one layer each. Throws BadInput where a stage would have nothing, or
// less than what it is to have fewer.
std::vector<DecoderPart> pipeline_stages(int layers, int stages, int first_less = 1, int last_less = 1);

}  // namespace tandem
