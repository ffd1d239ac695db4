// See checks.h.
#include "common/ops/checks.h"

#include <utility>

#include "common/ops/check.h"

namespace tandem::ops::checks {
namespace {

void check_logits(const char* op, const Tensor& logits, std::span<const std::int32_t> targets,
                  float temperature) {
    detail::check_ndim(op, "logits", logits, 2);
    detail::check_dtype(op, "logits", logits, DType::float32);
    require(temperature > 0.0f, "{}: temperature {} must be positive", op, temperature);
    require(static_cast<std::int64_t>(targets.size()) == logits.dim(0), [&] {
        return fmt::format("{}: {} targets for logits {}", op, targets.size(), to_string(logits.shape()));
    });
    require(logits.dim(1) > 0 || logits.dim(0) == 0,
            [&] { return fmt::format("{}: logits {} have no columns", op, to_string(logits.shape())); });
    for (std::size_t i = 0; i < targets.size(); ++i) {
        require(targets[i] >= -1 && targets[i] < logits.dim(1),
                "{}: target {} in row {} is outside the vocabulary of {}", op, targets[i], i, logits.dim(1));
    }
}

void check_ids(const char* op, std::span<const std::int32_t> ids, std::int64_t vocab) {
    for (std::size_t i = 0; i < ids.size(); ++i) {
        require(ids[i] >= 0 && ids[i] < vocab, "{}: id {} at position {} is outside the table of {} rows", op,
                ids[i], i, vocab);
    }
}

}  // namespace

void adamw(const Tensor& param, const Tensor& grad, const Tensor& exp_avg, const Tensor& exp_avg_sq,
           const AdamWParams& params) {
    detail::check_floating("adamw", "param", param);
    for (const auto& [name, tensor] : {std::pair<const char*, const Tensor&>{"grad", grad},
                                       {"exp_avg", exp_avg},
                                       {"exp_avg_sq", exp_avg_sq}}) {
        detail::check_dtype("adamw", name, tensor, DType::float32);
        require(tensor.numel() == param.numel(), [&] {
            return fmt::format("adamw: shapes {} and {} differ in size", to_string(tensor.shape()),
                               to_string(param.shape()));
        });
    }
    require(params.step >= 1, "adamw: step {} must be at least 1", params.step);
    require(params.first_element >= 0, "adamw: first element {}", params.first_element);
}

void sum_of_squares(const Tensor& values) {
    detail::check_dtype("sum_of_squares", "values", values, DType::float32);
}

void token_logprobs(const Tensor& logits, std::span<const std::int32_t> targets, float temperature,
                    std::span<float> logprobs, std::span<float> lse, std::span<float> entropies) {
    check_logits("token_logprobs", logits, targets, temperature);
    require(logprobs.size() == targets.size() && lse.size() == targets.size() &&
                (entropies.empty() || entropies.size() == targets.size()),
            "token_logprobs: logprobs {}, lse {}, entropies {} for {} rows", logprobs.size(), lse.size(),
            entropies.size(), targets.size());
}

void token_logprobs_backward(const Tensor& logits, std::span<const std::int32_t> targets, float temperature,
                             std::span<const float> lse, std::span<const float> dlogprobs,
                             std::span<const float> entropies, std::span<const float> dentropies) {
    check_logits("token_logprobs_backward", logits, targets, temperature);
    require(lse.size() == targets.size() && dlogprobs.size() == targets.size() &&
                (dentropies.empty() || dentropies.size() == targets.size()) &&
                entropies.size() >= dentropies.size(),
            "token_logprobs_backward: lse {}, dlogprobs {}, entropies {}, dentropies {} for {} rows",
            lse.size(), dlogprobs.size(), entropies.size(), dentropies.size(), targets.size());
}

void sample_tokens(const Tensor& logits, std::span<const Sampling> samples, std::span<std::int32_t> tokens,
                   std::span<float> logprobs) {
    constexpr const char* kOp = "sample_tokens";
    detail::check_ndim(kOp, "logits", logits, 2);
    detail::check_dtype(kOp, "logits", logits, DType::float32);
    require(logits.dim(1) > 0 || samples.empty(), "{}: logits {} have no columns", kOp,
            to_string(logits.shape()));
    require(tokens.size() == samples.size(), "{}: room for {} tokens, {} samples", kOp, tokens.size(),
            samples.size());
    for (std::size_t i = 0; i < samples.size(); ++i) {
        const Sampling& s = samples[i];
        require(s.row >= 0 && s.row < logits.dim(0), "{}: sample {} takes row {} of {}", kOp, i, s.row,
                logits.dim(0));
        require(s.temperature >= 0.0f && s.min_p >= 0.0f && s.min_p <= 1.0f && s.uniform >= 0.0 &&
                    s.uniform < 1.0,
                "{}: sample {}: temperature {}, min_p {}, random number {}", kOp, i, s.temperature, s.min_p,
                s.uniform);
        require(!s.logprob || logprobs.size() == samples.size(), "{}: room for {} log-probs, {} samples", kOp,
                logprobs.size(), samples.size());
    }
}

void copy_item(const CopyItem& item, bool writes) {
    const std::size_t from_size = dtype_size(item.from_dtype);
    const std::size_t to_size = dtype_size(item.to_dtype);
    const bool castable = (item.from_dtype == DType::float32 && item.to_dtype == DType::bfloat16) ||
                          (item.from_dtype == DType::bfloat16 && item.to_dtype == DType::float32);
    require(item.from_dtype == item.to_dtype || castable, "batched_copy: no cast from {} to {}",
            dtype_name(item.from_dtype), dtype_name(item.to_dtype));
    require(item.from.bytes % from_size == 0 && item.to.bytes % to_size == 0 &&
                item.from.bytes / from_size == item.to.bytes / to_size,
            "batched_copy: {} bytes of {} do not fill {} bytes of {}", item.from.bytes,
            dtype_name(item.from_dtype), item.to.bytes, dtype_name(item.to_dtype));
    require(item.rows >= 0, "batched_copy: {} rows", item.rows);
    if (item.rows > 1) {
        require(item.from_stride >= item.from.bytes && item.from_stride % from_size == 0,
                "batched_copy: rows of {} bytes lie {} bytes apart in the source", item.from.bytes,
                item.from_stride);
        require(!writes || (item.to_stride >= item.to.bytes && item.to_stride % to_size == 0),
                "batched_copy: rows of {} bytes lie {} bytes apart in the target", item.to.bytes,
                item.to_stride);
    }
    const bool none = item.to.bytes == 0 || item.rows == 0;
    require(none || (item.from.data != nullptr && (!writes || item.to.data != nullptr)),
            "batched_copy: {} bytes from or to a null pointer", item.to.bytes);
}

void cast(const Tensor& from, const Tensor& to) {
    detail::check_shape("cast", "to", to, from.shape());
    if (from.dtype() != to.dtype()) {
        if (from.dtype() != DType::float16) detail::check_floating("cast", "from", from);
        detail::check_floating("cast", "to", to);
    }
}

void add(const Tensor& a, const Tensor& b) {
    detail::check_floating("add", "a", a);
    detail::check_floating("add", "b", b);
    detail::check_shape("add", "b", b, a.shape());
}

void scale(const Tensor& a) {
    detail::check_dtype("scale", "a", a, DType::float32);
}

void fill_zero(const Tensor& a) {
    require(a.defined(), "fill_zero: a is undefined");
}

void delta_encode(const DeltaSource& source, Span base, Span to) {
    const bool known = (source.from_dtype == DType::float32 || source.from_dtype == DType::bfloat16) &&
                       (source.to_dtype == DType::float32 || source.to_dtype == DType::bfloat16);
    require(known, "delta_encode: elements of {} as {}; float32 and bfloat16 are known",
            dtype_name(source.from_dtype), dtype_name(source.to_dtype));
    const std::size_t width = dtype_size(source.to_dtype);
    require(source.rows >= 0 && source.row_elements >= 0, "delta_encode: {} rows of {} elements", source.rows,
            source.row_elements);
    const auto elements = static_cast<std::size_t>(source.rows * source.row_elements);
    require(elements <= UINT32_MAX, "delta_encode: {} elements are too many for one run", elements);
    require(base.bytes == elements * width, "delta_encode: {} bytes of base for {} elements of {}",
            base.bytes, elements, dtype_name(source.to_dtype));
    require(to.bytes >= delta_capacity(source.rows * source.row_elements, width),
            "delta_encode: room for {} bytes, {} may be needed", to.bytes, elements * width);
}

void weight_box(const char* op, const WeightBox& box, const ScaleGrid& grid, std::size_t scales) {
    require(box.dtype == DType::float32 || box.dtype == DType::bfloat16,
            "{}: a weight of {}, expected float32 or bfloat16", op, dtype_name(box.dtype));
    require(box.row >= 0 && box.column >= 0 && box.rows >= 0 && box.columns >= 0 &&
                box.row + box.rows <= grid.rows && box.column + box.columns <= grid.columns,
            "{}: {}×{} elements at ({}, {}) of a {}×{} weight", op, box.rows, box.columns, box.row,
            box.column, grid.rows, grid.columns);
    const std::size_t row_bytes = static_cast<std::size_t>(box.columns) * dtype_size(box.dtype);
    require(box.rows <= 1 || (box.stride >= row_bytes && box.stride % dtype_size(box.dtype) == 0),
            "{}: rows of {} bytes lie {} bytes apart", op, row_bytes, box.stride);
    require(static_cast<std::int64_t>(scales) == grid.scale_rows() * grid.scale_columns(),
            "{}: {} scales, expected {}×{}", op, scales, grid.scale_rows(), grid.scale_columns());
}

void embedding(const Tensor& table, std::span<const std::int32_t> ids, const Tensor& y) {
    detail::check_ndim("embedding", "table", table, 2);
    detail::check_floating("embedding", "table", table);
    detail::check_shape("embedding", "y", y, {static_cast<std::int64_t>(ids.size()), table.dim(1)});
    detail::check_dtype("embedding", "y", y, table.dtype());
    check_ids("embedding", ids, table.dim(0));
}

void embedding_backward(const Tensor& dy, std::span<const std::int32_t> ids, const Tensor& dtable) {
    detail::check_ndim("embedding_backward", "dtable", dtable, 2);
    detail::check_dtype("embedding_backward", "dtable", dtable, DType::float32);
    detail::check_floating("embedding_backward", "dy", dy);
    detail::check_shape("embedding_backward", "dy", dy,
                        {static_cast<std::int64_t>(ids.size()), dtable.dim(1)});
    check_ids("embedding_backward", ids, dtable.dim(0));
}

void linear_backward_bias(const Tensor& dy, const Tensor& dbias) {
    detail::check_floating("linear_backward_bias", "dy", dy);
    detail::check_ndim("linear_backward_bias", "dy", dy, 2);
    detail::check_dtype("linear_backward_bias", "dbias", dbias, DType::float32);
    detail::check_shape("linear_backward_bias", "dbias", dbias, {dy.dim(1)});
}

void rms_norm(const Tensor& x, const Tensor& weight, const Tensor& y, const Tensor& rstd) {
    detail::check_floating("rms_norm", "x", x);
    require(x.ndim() >= 1 && x.dim(-1) > 0,
            [&] { return fmt::format("rms_norm: x has shape {}", to_string(x.shape())); });
    const std::int64_t dim = x.dim(-1);
    const std::int64_t rows = x.numel() / dim;
    detail::check_shape("rms_norm", "weight", weight, {dim});
    detail::check_dtype("rms_norm", "weight", weight, x.dtype());
    detail::check_shape("rms_norm", "y", y, x.shape());
    detail::check_dtype("rms_norm", "y", y, x.dtype());
    if (rstd.defined()) {
        detail::check_dtype("rms_norm", "rstd", rstd, DType::float32);
        require(rstd.numel() == rows,
                [&] { return fmt::format("rms_norm: rstd {} for {} rows", to_string(rstd.shape()), rows); });
    }
}

void rms_norm_backward(const Tensor& dy, const Tensor& x, const Tensor& weight, const Tensor& rstd,
                       const Tensor& dx, const Tensor& dweight) {
    detail::check_floating("rms_norm_backward", "x", x);
    require(x.ndim() >= 1 && x.dim(-1) > 0,
            [&] { return fmt::format("rms_norm_backward: x has shape {}", to_string(x.shape())); });
    const std::int64_t dim = x.dim(-1);
    const std::int64_t rows = x.numel() / dim;
    detail::check_floating("rms_norm_backward", "dy", dy);
    detail::check_shape("rms_norm_backward", "dy", dy, x.shape());
    detail::check_shape("rms_norm_backward", "weight", weight, {dim});
    detail::check_floating("rms_norm_backward", "weight", weight);
    detail::check_floating("rms_norm_backward", "dx", dx);
    detail::check_shape("rms_norm_backward", "dx", dx, x.shape());
    detail::check_dtype("rms_norm_backward", "dweight", dweight, DType::float32);
    detail::check_shape("rms_norm_backward", "dweight", dweight, {dim});
    detail::check_dtype("rms_norm_backward", "rstd", rstd, DType::float32);
    require(rstd.numel() == rows, [&] {
        return fmt::format("rms_norm_backward: rstd {} for {} rows", to_string(rstd.shape()), rows);
    });
}

void rope(const char* op, const Tensor& x, std::span<const std::int32_t> positions, const RopeTable& table) {
    detail::check_floating(op, "x", x);
    detail::check_ndim(op, "x", x, 3);
    require(x.dim(2) % 2 == 0 && x.dim(2) > 0,
            [&] { return fmt::format("{}: head_dim of x {} must be even", op, to_string(x.shape())); });
    require(static_cast<std::int64_t>(positions.size()) == x.dim(0), [&] {
        return fmt::format("{}: {} positions for x {}", op, positions.size(), to_string(x.shape()));
    });
    require(table.head_dim() == x.dim(2), [&] {
        return fmt::format("{}: a table of head_dim {} for x {}", op, table.head_dim(), to_string(x.shape()));
    });
    for (const std::int32_t position : positions)
        require(position >= 0, "{}: negative position {}", op, position);
}

void swiglu(const Tensor& gate, const Tensor& up, const Tensor& y) {
    detail::check_floating("swiglu", "gate", gate);
    detail::check_floating("swiglu", "up", up);
    detail::check_floating("swiglu", "y", y);
    detail::check_shape("swiglu", "up", up, gate.shape());
    detail::check_shape("swiglu", "y", y, gate.shape());
}

void swiglu_backward(const Tensor& dy, const Tensor& gate, const Tensor& up, const Tensor& dgate,
                     const Tensor& dup) {
    for (const auto& [name, tensor] : {std::pair<const char*, const Tensor&>{"dy", dy},
                                       {"gate", gate},
                                       {"up", up},
                                       {"dgate", dgate},
                                       {"dup", dup}}) {
        detail::check_floating("swiglu_backward", name, tensor);
        detail::check_shape("swiglu_backward", name, tensor, gate.shape());
    }
}

}  // namespace tandem::ops::checks
