// Naive fp64 references for the ops, finite differences, and random tensors with a fixed seed.
#pragma once

#include <functional>
#include <random>
#include <vector>

#include "common/ops/attention.h"
#include "common/ops/rope.h"
#include "common/tensor/tensor.h"

namespace tandem::testing {

using Doubles = std::vector<double>;

// Values in a normal distribution, representable in `dtype`.
Tensor random_tensor(std::mt19937& generator, const Shape& shape, DType dtype = DType::float32,
                     float scale = 1.0f);
Tensor zeros(const Shape& shape, DType dtype = DType::float32);
Doubles to_doubles(const Tensor& tensor);  // float32 or bfloat16

// The plain frequencies theta^(-2i / head_dim).
ops::RopeTable rope_table(double theta, std::int64_t head_dim);

// Fails the test where |got - wanted| > relative * max(|wanted|, typical size of wanted) (+ half a bfloat16
// step).
void expect_close(const Tensor& got, const Doubles& wanted, double relative, const char* what,
                  double absolute = 0.0);
// Fails the test where `got` is further from `wanted` than `times` the furthest that `plain`, the result of plain
// bfloat16 arithmetic, is.
void expect_within_plain(const Tensor& got, const Doubles& wanted, const Doubles& plain, const char* what,
                         double times = 3.0);
void expect_same_bits(const Tensor& a, const Tensor& b, const char* what);

// d(sum(weights * forward(x)))/dx by central differences.
Doubles finite_differences(const std::function<Doubles(const Doubles&)>& forward, const Doubles& x,
                           const Doubles& weights);

struct AttentionDims {
    std::int64_t q_rows, k_rows, heads, kv_heads, head_dim;
};
struct AttentionCase {
    AttentionDims dims;
    std::vector<ops::AttentionSegment> segments;
    Tensor q, k, v;
    float scale;
};
// Random tensors, and the scale that goes with head_dim.
AttentionCase attention_case(std::mt19937& generator, const AttentionDims& dims,
                             std::vector<ops::AttentionSegment> segments, DType dtype = DType::float32);
struct AttentionResult {
    Doubles out, lse;
};
// `rounded`: out where scores, weights and results are rounded to bfloat16 each, as a framework without fused kernels
// has them.
AttentionResult naive_attention(const AttentionDims& dims, const Doubles& q, const Doubles& k,
                                const Doubles& v, const std::vector<ops::AttentionSegment>& segments,
                                double scale, bool rounded = false);
struct AttentionGradients {
    Doubles dq, dk, dv;
};
// `rounded`: with p, dp and ds rounded to bfloat16, as plain bfloat16 arithmetic has them.
AttentionGradients naive_attention_backward(const AttentionDims& dims, const Doubles& q, const Doubles& k,
                                            const Doubles& v, const Doubles& dout,
                                            const std::vector<ops::AttentionSegment>& segments, double scale,
                                            bool rounded = false);

}  // namespace tandem::testing
