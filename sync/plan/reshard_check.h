// Checks of a plan's input: parts that do not make up an engine's tensor, casts that the copy does not know.
#pragma once

#include "engine_adapter/engine.h"

namespace tandem::sync {

// Throws InvalidArgument naming the tensor unless its parts write every element exactly once.
void check_coverage(const engine::TensorInfo& tensor, int engine_rank);

// True when the copy can turn `from` into `to`: equal, or float32 ↔ bfloat16.
bool copy_casts(DType from, DType to);

}  // namespace tandem::sync
