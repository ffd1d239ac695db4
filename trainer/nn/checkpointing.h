// The part of its forward that a layer keeps for its backward. The rest it computes again, from the same
// bits by the same kernels, so gradients are bit-identical. Bytes and FLOPs of each: README.md.
#pragma once

#include <cstdint>

namespace tandem::trainer {

enum class Checkpointing : std::uint8_t {
    none,       // everything that the backward reads
    selective,  // all but the norms' outputs and the feed-forward: no projection or attention runs twice
    full,       // the layer's input
};

}  // namespace tandem::trainer
