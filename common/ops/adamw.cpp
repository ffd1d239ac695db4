// The checks that hold on every device, then the way to the backend.
#include "common/ops/adamw.h"

#include "common/ops/check.h"
#include "common/ops/dispatch.h"

namespace tandem::ops {

void adamw(Stream& stream, Tensor param, const Tensor& grad, Tensor exp_avg, Tensor exp_avg_sq,
           const AdamWParams& params, Tensor non_finite, Tensor rounded) {
    detail::check_floating("adamw", "param", param);
    const auto check = [&](const char* name, const Tensor& tensor, DType dtype = DType::float32) {
        detail::check_dtype("adamw", name, tensor, dtype);
        require(tensor.numel() == param.numel(), [&] {
            return fmt::format("adamw: shapes {} and {} differ in size", to_string(tensor.shape()),
                               to_string(param.shape()));
        });
    };
    check("grad", grad);
    check("exp_avg", exp_avg);
    check("exp_avg_sq", exp_avg_sq);
    require(params.step >= 1, "adamw: step {} must be at least 1", params.step);
    require(params.first_element >= 0, "adamw: first element {}", params.first_element);
    if (non_finite.defined()) {
        detail::check_dtype("adamw", "non_finite", non_finite, DType::int64);
        require(non_finite.numel() == 1, "adamw: {} counters", non_finite.numel());
    }
    if (rounded.defined()) {
        detail::check_dtype("adamw", "param beside a rounded one", param, DType::float32);
        check("rounded", rounded, DType::bfloat16);
    }
    TANDEM_ROUTE(adamw, param, grad, exp_avg, exp_avg_sq, params, non_finite, rounded);
}

double sum_of_squares(Stream& stream, const Tensor& values) {
    detail::check_dtype("sum_of_squares", "values", values, DType::float32);
    return TANDEM_ROUTE_NOW(sum_of_squares, values);
}

double sum_of_squares(const Tensor& values) {
    Stream here = Stream::make_inline();
    return sum_of_squares(here, values);
}

}  // namespace tandem::ops
