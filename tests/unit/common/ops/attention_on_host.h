// Shared by the tests of attention on tensor cores, whose kernels run on the host: cases, and calls of the ops.
#pragma once

#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "common/ops/attention.h"
#include "tests/gpu/ops/rig.h"
#include "tests/unit/common/ops/oracle.h"

namespace tandem::tests {

using ops::AttentionSegment;
using testing::AttentionDims;

using HostCase = testing::AttentionCase;  // of bfloat16

struct HostOutputs {
    Tensor out, lse;
};

// On tensors whose memory ends before a page that must not be touched; all rows are rubbish before.
HostOutputs host_forward(const HostCase& c, DType out_dtype = DType::float32);

// Since the last call. Fails where matrices were loaded with bank conflicts.
bool used_tensor_cores();

}  // namespace tandem::tests
