// Which layers each stage of a pipeline has.
#pragma once

#include <vector>

#include "trainer/nn/decoder_parameters.h"

namespace tandem::trainer {

// As TorchTitan cuts: the embedding weighs as many layers as the first stage has fewer, the head as many as the last one has
// fewer; what does not divide goes to the first stages, one layer each. Throws BadInput where a stage would have nothing, or
// less than what it is to have fewer.
std::vector<DecoderPart> decoder_stages(int layers, int stages, int first_less = 1, int last_less = 1);

}  // namespace tandem::trainer
