// Rotary position embedding, rotate-half form (Hugging Face's): pairs are (i, i + head_dim / 2),
// angle = position * theta^(-2i / head_dim), computed in fp32 (fp64 for the inverse frequency).
#pragma once

#include <cstdint>
#include <span>

#include "common/device/stream.h"
#include "common/tensor/tensor.h"

namespace tandem::ops {

// x [tokens, heads, head_dim] in place, float32 or bfloat16; positions [tokens].
void rope(Stream& stream, Tensor x, std::span<const std::int32_t> positions, float theta);
// The transposed rotation, in place.
void rope_backward(Stream& stream, Tensor dx, std::span<const std::int32_t> positions, float theta);

}  // namespace tandem::ops
