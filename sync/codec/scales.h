// The tensors that an engine wants quantised (those of dtype float8_e4m3fn or int8) and the layout of their
// scales. Pure.
//
//   engine's tensor X.weight   its companion, float32                  one scale for
//   float8_e4m3fn [N, K]       X.weight_scale_inv [⌈N/128⌉, ⌈K/128⌉]   a block of 128×128
//   int8          [N, K]       X.weight_scale [N, 1]                   a row
// The companion is made of the companions of the weight's parts. Each block belongs to one engine tensor
// whole, so a part is cut along blocks.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "common/ops/quantize.h"
#include "sync/plan/layout.h"

namespace tandem::sync {

bool is_quantized(DType dtype);
std::string scale_name(const std::string& weight, DType dtype);
// The grid of a whole weight, which must have two dims.
ops::ScaleGrid scale_grid(DType dtype, const Shape& weight);

// The companion of a quantised engine tensor; `shape_of` gives the shapes of the trainer's tensors. Throws
// InvalidArgument naming a part that is not cut, or not placed, along blocks.
engine::TensorInfo scales_of(const engine::TensorInfo& weight,
                             const std::function<Shape(const std::string&)>& shape_of);

// A trainer's tensor that the engines want quantised. Both are source tensors of the plan.
struct QuantizedTensor {
    int values = 0;                // of the engine's dtype there
    int scales = 0;                // on every rank
    DType held = DType::bfloat16;  // the trainer's
    ops::ScaleGrid grid;
};

// Turns what the engines want quantised into source tensors of that dtype and adds their scales, which every
// rank will hold. Throws InvalidArgument naming the tensor: scales missing beside it or for other blocks, not
// a matrix, wanted in two ways.
std::vector<QuantizedTensor> add_quantized(SourceLayout& source, const EngineLayout& engines);

}  // namespace tandem::sync
