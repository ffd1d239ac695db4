// The checks that hold on every device, then the way to the backend.
#include "common/ops/elementwise.h"

#include "common/ops/check.h"
#include "common/ops/dispatch.h"

namespace tandem::ops {

void cast(Stream& stream, const Tensor& from, Tensor to) {
    detail::check_shape("cast", "to", to, from.shape());
    if (from.dtype() != to.dtype()) {
        if (from.dtype() != DType::float16) detail::check_floating("cast", "from", from);
        const bool to_half = to.dtype() == DType::float16 && stream.device().type == DeviceType::cpu;
        if (!to_half) detail::check_floating("cast", "to", to);
    }
    TANDEM_ROUTE(cast, from, to);
}

void add(Stream& stream, Tensor a, const Tensor& b) {
    detail::check_floating("add", "a", a);
    detail::check_floating("add", "b", b);
    detail::check_shape("add", "b", b, a.shape());
    TANDEM_ROUTE(add, a, b);
}

void scale(Stream& stream, Tensor a, float factor) {
    detail::check_dtype("scale", "a", a, DType::float32);
    TANDEM_ROUTE(scale, a, factor);
}

void fill_zero(Stream& stream, Tensor a) {
    require(a.defined(), "fill_zero: a is undefined");
    TANDEM_ROUTE(fill_zero, a);
}

}  // namespace tandem::ops
