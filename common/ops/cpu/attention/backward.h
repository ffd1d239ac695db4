// What the ways of the backward of attention on the CPU share.
#pragma once

#include <vector>

#include "common/ops/attention.h"
#include "common/ops/cpu/attention/backward_pairs.h"
#include "common/ops/cpu/attention/pack.h"

namespace tandem::ops::detail {

struct BackwardOperands {
    Tensor dout, q, k, v, lse, delta;
    AttentionShape shape;
    float scale = 0.0f;
    Tensor dq, dk, dv;
};

// Adds the gradients of all segments of one kv head, in order, by products of pairs; dout, q, k and v are bfloat16.
void backward_pairs_kv_head(const BackwardPairsKernels& kernels, const BackwardOperands& b,
                            const std::vector<AttentionSegment>& segments, std::int64_t kv_head);

}  // namespace tandem::ops::detail
