// What the ops ask of their arguments, whatever device runs them: called before an op goes to a backend. All
// throw InvalidArgument naming the op and the shapes.
#pragma once

#include "common/ops/backends.h"

namespace tandem::ops::checks {

void adamw(const Tensor& param, const Tensor& grad, const Tensor& exp_avg, const Tensor& exp_avg_sq,
           const AdamWParams& params);
void sum_of_squares(const Tensor& values);

void token_logprobs(const Tensor& logits, std::span<const std::int32_t> targets, float temperature,
                    std::span<float> logprobs, std::span<float> lse, std::span<float> entropies);
void token_logprobs_backward(const Tensor& logits, std::span<const std::int32_t> targets, float temperature,
                             std::span<const float> lse, std::span<const float> dlogprobs,
                             std::span<const float> entropies, std::span<const float> dentropies);

void cast(const Tensor& from, const Tensor& to);
void add(const Tensor& a, const Tensor& b);
void scale(const Tensor& a);
void fill_zero(const Tensor& a);

void embedding(const Tensor& table, std::span<const std::int32_t> ids, const Tensor& y);
void embedding_backward(const Tensor& dy, std::span<const std::int32_t> ids, const Tensor& dtable);

void linear_backward_bias(const Tensor& dy, const Tensor& dbias);

void rms_norm(const Tensor& x, const Tensor& weight, const Tensor& y, const Tensor& rstd);
void rms_norm_backward(const Tensor& dy, const Tensor& x, const Tensor& weight, const Tensor& rstd,
                       const Tensor& dx, const Tensor& dweight);

void rope(const char* op, const Tensor& x, std::span<const std::int32_t> positions, const RopeTable& table);

void swiglu(const Tensor& gate, const Tensor& up, const Tensor& y);
void swiglu_backward(const Tensor& dy, const Tensor& gate, const Tensor& up, const Tensor& dgate,
                     const Tensor& dup);

}  // namespace tandem::ops::checks
