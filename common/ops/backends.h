// The backends of the ops: one namespace each, with the same functions. For this folder only; everybody else
// calls the public functions, which choose by the stream's device.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/ops/adamw.h"
#include "common/ops/attention.h"
#include "common/ops/batched_copy.h"
#include "common/ops/cross_entropy.h"
#include "common/ops/delta.h"
#include "common/ops/elementwise.h"
#include "common/ops/embedding.h"
#include "common/ops/matmul.h"
#include "common/ops/quantize.h"
#include "common/ops/rms_norm.h"
#include "common/ops/rope.h"
#include "common/ops/sampling.h"
#include "common/ops/swiglu.h"

namespace tandem::ops::cpu {
#include "common/ops/backend_functions.inl"
}  // namespace tandem::ops::cpu

#if TANDEM_WITH_CUDA
namespace tandem::ops::cuda {
#include "common/ops/backend_functions.inl"
}  // namespace tandem::ops::cuda
#endif
