// What a layer keeps of its forward for its backward. What it does not keep it computes again, from the same
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
