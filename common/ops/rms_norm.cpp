// The checks that hold on every device, then the way to the backend.
#include "common/ops/rms_norm.h"

#include "common/ops/check.h"
#include "common/ops/dispatch.h"

namespace tandem::ops {

namespace {

void check_forward(const char* op, const Tensor& x, const Tensor& weight, const Tensor& y) {
    detail::check_floating(op, "x", x);
    require(x.ndim() >= 1 && x.dim(-1) > 0,
            [&] { return fmt::format("{}: x has shape {}", op, to_string(x.shape())); });
    detail::check_shape(op, "weight", weight, {x.dim(-1)});
    detail::check_dtype(op, "weight", weight, x.dtype());
    detail::check_shape(op, "y", y, x.shape());
    detail::check_dtype(op, "y", y, x.dtype());
}

}  // namespace

void rms_norm(Stream& stream, const Tensor& x, const Tensor& weight, float eps, Tensor y, Tensor rstd) {
    check_forward("rms_norm", x, weight, y);
    const std::int64_t rows = x.numel() / x.dim(-1);
    if (rstd.defined()) {
        detail::check_dtype("rms_norm", "rstd", rstd, DType::float32);
        require(rstd.numel() == rows,
                [&] { return fmt::format("rms_norm: rstd {} for {} rows", to_string(rstd.shape()), rows); });
    }
    TANDEM_ROUTE(rms_norm, x, weight, eps, y, rstd);
}

void add_rms_norm(Stream& stream, Tensor x, const Tensor& update, const Tensor& weight, float eps, Tensor y) {
    check_forward("add_rms_norm", x, weight, y);
    detail::check_shape("add_rms_norm", "update", update, x.shape());
    detail::check_floating("add_rms_norm", "update", update);
    TANDEM_ROUTE(add_rms_norm, x, update, weight, eps, y);
}

void rms_norm_backward(Stream& stream, const Tensor& dy, const Tensor& x, const Tensor& weight,
                       const Tensor& rstd, Tensor dx, Tensor dweight, bool accumulate_dx) {
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
    TANDEM_ROUTE(rms_norm_backward, dy, x, weight, rstd, dx, dweight, accumulate_dx);
}

}  // namespace tandem::ops
