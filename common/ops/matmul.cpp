// The checks that hold on every device, then the way to the backend.
#include "common/ops/matmul.h"

#include <utility>
#include <vector>

#include "common/ops/check.h"
#include "common/ops/cpu/packed_products.h"
#include "common/ops/dispatch.h"
#include "common/ops/packed_weight.h"

namespace tandem::ops {
namespace {

void check_product(const char* op, const Tensor& a, bool transpose_a, const Tensor& b, bool transpose_b,
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
}

}  // namespace

void matmul(Stream& stream, const Tensor& a, Transpose transpose_a, const Tensor& b, Transpose transpose_b,
            Tensor c, bool accumulate) {
    check_product("matmul", a, transpose_a == Transpose::yes, b, transpose_b == Transpose::yes, {}, c);
    TANDEM_ROUTE(matmul, a, transpose_a, b, transpose_b, c, accumulate);
}

void linear(Stream& stream, const Tensor& x, const Tensor& weight, Tensor y) {
    linear(stream, x, weight, {}, y);
}

void linear(Stream& stream, const Tensor& x, const Tensor& weight, const Tensor& bias, Tensor y) {
    check_product("linear", x, false, weight, true, bias, y);
    TANDEM_ROUTE(linear, x, weight, bias, y);
}

void linear(Stream& stream, const Tensor& x, const PackedWeight& weight, const Tensor& bias, Tensor y) {
    const Projection one{&weight, bias, std::move(y)};
    linear(stream, x, std::span(&one, 1));
}

void linear(Stream& stream, const Tensor& x, std::span<const Projection> projections) {
    std::vector<cpu::PackedProjection> packed;
    for (const Projection& p : projections) {
        const PackedWeight& w = *p.weight;
        if (w.packed().bytes == 0) {
            linear(stream, x, w.weight(), p.bias, p.y);
            continue;
        }
        check_product("linear", x, false, w.weight(), true, p.bias, p.y);
        packed.push_back({w.weight(), w.packed(), p.bias, p.y});
    }
    if (!packed.empty()) cpu::linear_packed(stream, x, std::move(packed));
}

void linear_backward_input(Stream& stream, const Tensor& dy, const Tensor& weight, Tensor dx,
                           bool accumulate) {
    check_product("linear_backward_input", dy, false, weight, false, {}, dx);
    TANDEM_ROUTE(linear_backward_input, dy, weight, dx, accumulate);
}

void linear_backward_weight(Stream& stream, const Tensor& dy, const Tensor& x, Tensor dweight,
                            bool accumulate) {
    detail::check_dtype("linear_backward_weight", "dweight", dweight, DType::float32);
    check_product("linear_backward_weight", dy, true, x, false, {}, dweight);
    TANDEM_ROUTE(linear_backward_weight, dy, x, dweight, accumulate);
}

void linear_backward_bias(Stream& stream, const Tensor& dy, Tensor dbias) {
    detail::check_floating("linear_backward_bias", "dy", dy);
    detail::check_ndim("linear_backward_bias", "dy", dy, 2);
    detail::check_dtype("linear_backward_bias", "dbias", dbias, DType::float32);
    detail::check_shape("linear_backward_bias", "dbias", dbias, {dy.dim(1)});
    TANDEM_ROUTE(linear_backward_bias, dy, dbias);
}

}  // namespace tandem::ops
