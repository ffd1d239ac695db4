// The public functions: each goes to the backend of its stream's device.
#include "common/ops/backends.h"

namespace tandem::ops {

void adamw(Stream& stream, Tensor param, const Tensor& grad, Tensor exp_avg, Tensor exp_avg_sq,
           const AdamWParams& params) {
    cpu::adamw(stream, param, grad, exp_avg, exp_avg_sq, params);
}

double sum_of_squares(Stream& stream, const Tensor& values) {
    return cpu::sum_of_squares(stream, values);
}

double sum_of_squares(const Tensor& values) {
    Stream stream = Stream::make_inline();
    return cpu::sum_of_squares(stream, values);
}

void attention_forward(Stream& stream, const Tensor& q, const Tensor& k, const Tensor& v,
                       const std::vector<AttentionSegment>& segments, float scale, Tensor out, Tensor lse) {
    cpu::attention_forward(stream, q, k, v, segments, scale, out, lse);
}

void attention_delta(Stream& stream, const Tensor& dout, const Tensor& out, Tensor delta) {
    cpu::attention_delta(stream, dout, out, delta);
}

void attention_backward(Stream& stream, const Tensor& dout, const Tensor& q, const Tensor& k, const Tensor& v,
                        const Tensor& lse, const Tensor& delta, const std::vector<AttentionSegment>& segments,
                        float scale, Tensor dq, Tensor dk, Tensor dv) {
    cpu::attention_backward(stream, dout, q, k, v, lse, delta, segments, scale, dq, dk, dv);
}

void attention_merge(Stream& stream, const Tensor& block_out, const Tensor& block_lse, std::int64_t row_begin,
                     Tensor out, Tensor lse) {
    cpu::attention_merge(stream, block_out, block_lse, row_begin, out, lse);
}

void paged_attention_decode(Stream& stream, const Tensor& q, const Tensor& k_cache, const Tensor& v_cache,
                            const std::vector<std::vector<std::int32_t>>& block_tables,
                            const std::vector<std::int32_t>& lengths, float scale, Tensor out) {
    cpu::paged_attention_decode(stream, q, k_cache, v_cache, block_tables, lengths, scale, out);
}

void batched_copy(Stream& stream, std::span<const CopyItem> items) {
    cpu::batched_copy(stream, items);
}

void token_logprobs(Stream& stream, const Tensor& logits, std::span<const std::int32_t> targets,
                    float temperature, std::span<float> logprobs, std::span<float> lse,
                    std::span<float> entropies) {
    cpu::token_logprobs(stream, logits, targets, temperature, logprobs, lse, entropies);
}

void token_logprobs_backward(Stream& stream, Tensor logits, std::span<const std::int32_t> targets,
                             float temperature, std::span<const float> lse, std::span<const float> dlogprobs,
                             std::span<const float> entropies, std::span<const float> dentropies) {
    cpu::token_logprobs_backward(stream, logits, targets, temperature, lse, dlogprobs, entropies, dentropies);
}

void cast(Stream& stream, const Tensor& from, Tensor to) {
    cpu::cast(stream, from, to);
}

void add(Stream& stream, Tensor a, const Tensor& b) {
    cpu::add(stream, a, b);
}

void scale(Stream& stream, Tensor a, float factor) {
    cpu::scale(stream, a, factor);
}

void fill_zero(Stream& stream, Tensor a) {
    cpu::fill_zero(stream, a);
}

void embedding(Stream& stream, const Tensor& table, std::span<const std::int32_t> ids, Tensor y) {
    cpu::embedding(stream, table, ids, y);
}

void embedding_backward(Stream& stream, const Tensor& dy, std::span<const std::int32_t> ids, Tensor dtable) {
    cpu::embedding_backward(stream, dy, ids, dtable);
}

void matmul(Stream& stream, const Tensor& a, Transpose transpose_a, const Tensor& b, Transpose transpose_b,
            Tensor c, bool accumulate) {
    cpu::matmul(stream, a, transpose_a, b, transpose_b, c, accumulate);
}

void linear(Stream& stream, const Tensor& x, const Tensor& weight, Tensor y) {
    linear(stream, x, weight, {}, y);
}

void linear(Stream& stream, const Tensor& x, const Tensor& weight, const Tensor& bias, Tensor y) {
    cpu::linear(stream, x, weight, bias, y);
}

void linear_backward_input(Stream& stream, const Tensor& dy, const Tensor& weight, Tensor dx,
                           bool accumulate) {
    cpu::linear_backward_input(stream, dy, weight, dx, accumulate);
}

void linear_backward_weight(Stream& stream, const Tensor& dy, const Tensor& x, Tensor dweight) {
    cpu::linear_backward_weight(stream, dy, x, dweight);
}

void linear_backward_bias(Stream& stream, const Tensor& dy, Tensor dbias) {
    cpu::linear_backward_bias(stream, dy, dbias);
}

void rms_norm(Stream& stream, const Tensor& x, const Tensor& weight, float eps, Tensor y, Tensor rstd) {
    cpu::rms_norm(stream, x, weight, eps, y, rstd);
}

void rms_norm_backward(Stream& stream, const Tensor& dy, const Tensor& x, const Tensor& weight,
                       const Tensor& rstd, Tensor dx, Tensor dweight, bool accumulate_dx) {
    cpu::rms_norm_backward(stream, dy, x, weight, rstd, dx, dweight, accumulate_dx);
}

void rope(Stream& stream, Tensor x, std::span<const std::int32_t> positions, const RopeTable& table) {
    cpu::rope(stream, x, positions, table);
}

void rope_backward(Stream& stream, Tensor dx, std::span<const std::int32_t> positions,
                   const RopeTable& table) {
    cpu::rope_backward(stream, dx, positions, table);
}

void swiglu(Stream& stream, const Tensor& gate, const Tensor& up, Tensor y) {
    cpu::swiglu(stream, gate, up, y);
}

void swiglu_backward(Stream& stream, const Tensor& dy, const Tensor& gate, const Tensor& up, Tensor dgate,
                     Tensor dup) {
    cpu::swiglu_backward(stream, dy, gate, up, dgate, dup);
}

}  // namespace tandem::ops
