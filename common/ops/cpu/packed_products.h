// Matmuls with a copy of the weight in the layout that the CPU's kernels read: the CPU's part of
// PackedWeight.
#pragma once

#include <vector>

#include "common/device/memory.h"
#include "common/device/stream.h"
#include "common/tensor/tensor.h"

namespace tandem::ops::cpu {

// Size of the copy of a weight [out, in]; 0 if this machine has no better layout.
std::size_t packed_bytes(const Tensor& weight);
// Blocking; on this process's compute threads.
void pack(const Tensor& weight, std::byte* to);

// linear with a copy that pack made, which must live until the stream is past it.
struct PackedProjection {
    Tensor weight;
    Span packed;
    Tensor bias;  // undefined: none
    Tensor y;
};
// All of one x, side by side.
void linear_packed(Stream& stream, const Tensor& x, std::vector<PackedProjection> projections);

}  // namespace tandem::ops::cpu
