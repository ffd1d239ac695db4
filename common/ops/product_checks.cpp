// See checks.h: products and attention.
#include "common/ops/check.h"
#include "common/ops/checks.h"
#include "common/ops/cpu/attention_pack.h"

namespace tandem::ops::checks {

void product(const char* op, const Tensor& a, bool transpose_a, const Tensor& b, bool transpose_b,
             const Tensor& bias, const Tensor& c) {
    for (const auto& [name, tensor] : {std::pair<const char*, const Tensor&>{"a", a}, {"b", b}, {"c", c}}) {
        detail::check_floating(op, name, tensor);
        detail::check_ndim(op, name, tensor, 2);
    }
    const std::int64_t m = a.dim(transpose_a ? 1 : 0), k = a.dim(transpose_a ? 0 : 1);
    const std::int64_t n = b.dim(transpose_b ? 0 : 1);
    const bool dtypes_fit =
        a.dtype() == b.dtype() && (c.dtype() == DType::float32 || a.dtype() == DType::bfloat16);
    require(k == b.dim(transpose_b ? 1 : 0) && c.shape() == Shape{m, n} && dtypes_fit, [&] {
        return fmt::format("{}: {} {}{} times {} {}{} does not give {} {}", op, dtype_name(a.dtype()),
                           to_string(a.shape()), transpose_a ? "^T" : "", dtype_name(b.dtype()),
                           to_string(b.shape()), transpose_b ? "^T" : "", dtype_name(c.dtype()),
                           to_string(c.shape()));
    });
    if (!bias.defined()) return;
    detail::check_shape(op, "bias", bias, {n});
    detail::check_dtype(op, "bias", bias, a.dtype());
    require(k > 0, "{}: a bias for a product over no columns", op);
}

void attention_forward(const Tensor& q, const Tensor& k, const Tensor& v,
                       const std::vector<AttentionSegment>& segments, const Tensor& out, const Tensor& lse) {
    const detail::AttentionShape shape = detail::attention_shape("attention_forward", q, k, v, segments);
    detail::check_shape("attention_forward", "out", out, q.shape());
    require(out.dtype() == q.dtype() || out.dtype() == DType::float32,
            "attention_forward: out is {} for q {}", dtype_name(out.dtype()), dtype_name(q.dtype()));
    detail::check_shape("attention_forward", "lse", lse, {shape.heads, shape.q_rows});
    detail::check_dtype("attention_forward", "lse", lse, DType::float32);
}

void attention_backward(const Tensor& dout, const Tensor& q, const Tensor& k, const Tensor& v,
                        const Tensor& lse, const Tensor& delta, const std::vector<AttentionSegment>& segments,
                        const Tensor& dq, const Tensor& dk, const Tensor& dv) {
    constexpr const char* kOp = "attention_backward";
    const detail::AttentionShape shape = detail::attention_shape(kOp, q, k, v, segments);
    detail::check_floating(kOp, "dout", dout);
    detail::check_shape(kOp, "dout", dout, q.shape());
    detail::check_shape(kOp, "lse", lse, {shape.heads, shape.q_rows});
    detail::check_dtype(kOp, "lse", lse, DType::float32);
    detail::check_shape(kOp, "delta", delta, {shape.heads, shape.q_rows});
    detail::check_dtype(kOp, "delta", delta, DType::float32);
    detail::check_shape(kOp, "dq", dq, q.shape());
    detail::check_dtype(kOp, "dq", dq, DType::float32);
    detail::check_shape(kOp, "dk", dk, k.shape());
    detail::check_dtype(kOp, "dk", dk, DType::float32);
    detail::check_shape(kOp, "dv", dv, v.shape());
    detail::check_dtype(kOp, "dv", dv, DType::float32);
}

void attention_delta(const Tensor& dout, const Tensor& out, const Tensor& delta) {
    detail::check_floating("attention_delta", "dout", dout);
    detail::check_floating("attention_delta", "out", out);
    detail::check_ndim("attention_delta", "out", out, 3);
    detail::check_shape("attention_delta", "dout", dout, out.shape());
    detail::check_shape("attention_delta", "delta", delta, {out.dim(1), out.dim(0)});
    detail::check_dtype("attention_delta", "delta", delta, DType::float32);
}

void attention_merge(const Tensor& block_out, const Tensor& block_lse, std::int64_t row_begin,
                     const Tensor& out, const Tensor& lse) {
    constexpr const char* kOp = "attention_merge";
    detail::check_ndim(kOp, "out", out, 3);
    detail::check_dtype(kOp, "out", out, DType::float32);
    detail::check_dtype(kOp, "lse", lse, DType::float32);
    detail::check_shape(kOp, "lse", lse, {out.dim(1), out.dim(0)});
    detail::check_ndim(kOp, "block_out", block_out, 3);
    detail::check_dtype(kOp, "block_out", block_out, DType::float32);
    detail::check_shape(kOp, "block_out", block_out, {block_out.dim(0), out.dim(1), out.dim(2)});
    detail::check_dtype(kOp, "block_lse", block_lse, DType::float32);
    detail::check_shape(kOp, "block_lse", block_lse, {out.dim(1), block_out.dim(0)});
    require(row_begin >= 0 && block_out.dim(0) <= out.dim(0) - row_begin, [&] {
        return fmt::format("{}: rows {} + {} are outside out {}", kOp, row_begin, block_out.dim(0),
                           to_string(out.shape()));
    });
}

void paged_attention_decode(const Tensor& q, const Tensor& k_cache, const Tensor& v_cache,
                            const std::vector<std::vector<std::int32_t>>& block_tables,
                            const std::vector<std::int32_t>& lengths, const Tensor& out) {
    constexpr const char* kOp = "paged_attention_decode";
    detail::paged_shape(kOp, q, k_cache, v_cache, block_tables, lengths);
    detail::check_shape(kOp, "out", out, q.shape());
    require(out.dtype() == q.dtype() || out.dtype() == DType::float32, "{}: out is {} for q {}", kOp,
            dtype_name(out.dtype()), dtype_name(q.dtype()));
}

}  // namespace tandem::ops::checks
