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

void sample_tokens(const Tensor& logits, std::span<const Sampling> samples, std::span<std::int32_t> tokens,
                   std::span<float> logprobs);

void copy_item(const CopyItem& item, bool writes);

void cast(const Tensor& from, const Tensor& to);
void add(const Tensor& a, const Tensor& b);
void scale(const Tensor& a);
void fill_zero(const Tensor& a);

void delta_encode(const DeltaSource& source, Span base, Span to);

void weight_box(const char* op, const WeightBox& box, const ScaleGrid& grid, std::size_t scales);

void embedding(const Tensor& table, std::span<const std::int32_t> ids, const Tensor& y);
void embedding_backward(const Tensor& dy, std::span<const std::int32_t> ids, const Tensor& dtable);

void linear_backward_bias(const Tensor& dy, const Tensor& dbias);

// Of these the CPU's functions look themselves.
void product(const char* op, const Tensor& a, bool transpose_a, const Tensor& b, bool transpose_b,
             const Tensor& bias, const Tensor& c);
void attention_forward(const Tensor& q, const Tensor& k, const Tensor& v,
                       const std::vector<AttentionSegment>& segments, const Tensor& out, const Tensor& lse);
void attention_backward(const Tensor& dout, const Tensor& q, const Tensor& k, const Tensor& v,
                        const Tensor& lse, const Tensor& delta, const std::vector<AttentionSegment>& segments,
                        const Tensor& dq, const Tensor& dk, const Tensor& dv);
void attention_delta(const Tensor& dout, const Tensor& out, const Tensor& delta);
void attention_merge(const Tensor& block_out, const Tensor& block_lse, std::int64_t row_begin,
                     const Tensor& out, const Tensor& lse);
void paged_attention_decode(const Tensor& q, const Tensor& k_cache, const Tensor& v_cache,
                            const std::vector<std::vector<std::int32_t>>& block_tables,
                            const std::vector<std::int32_t>& lengths, const Tensor& out);

// Of tables on the device, whose contents nobody can look at here.
void embedding(const Tensor& table, const Tensor& ids, const Tensor& y);
void rope(const Tensor& x, const Tensor& positions, std::int64_t limit, const RopeTable& table);
void paged_attention_decode(const Tensor& q, const Tensor& k_cache, const Tensor& v_cache,
                            const Tensor& pages, const Tensor& lengths, const Tensor& out);
void write_pages(const Tensor& k, const Tensor& v, const Tensor& pages, const Tensor& lengths,
                 const Tensor& k_cache, const Tensor& v_cache);

void delta_apply(std::size_t width, std::int64_t rows, std::int64_t row_elements, std::size_t stride);

void rms_norm(const Tensor& x, const Tensor& weight, const Tensor& y, const Tensor& rstd);
void rms_norm_backward(const Tensor& dy, const Tensor& x, const Tensor& weight, const Tensor& rstd,
                       const Tensor& dx, const Tensor& dweight);

void rope(const char* op, const Tensor& x, std::span<const std::int32_t> positions, const RopeTable& table);

void swiglu(const Tensor& gate, const Tensor& up, const Tensor& y);
void swiglu_backward(const Tensor& dy, const Tensor& gate, const Tensor& up, const Tensor& dgate,
                     const Tensor& dup);

}  // namespace tandem::ops::checks
