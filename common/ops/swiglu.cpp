// The checks that hold on every device, then the way to the backend.
#include "common/ops/swiglu.h"

#include <utility>

#include "common/ops/check.h"
#include "common/ops/dispatch.h"

namespace tandem::ops {

void swiglu(Stream& stream, const Tensor& gate, const Tensor& up, Tensor y) {
    detail::check_floating("swiglu", "gate", gate);
    detail::check_floating("swiglu", "up", up);
    detail::check_floating("swiglu", "y", y);
    detail::check_shape("swiglu", "up", up, gate.shape());
    detail::check_shape("swiglu", "y", y, gate.shape());
    TANDEM_ROUTE(swiglu, gate, up, y);
}

void swiglu_backward(Stream& stream, const Tensor& dy, const Tensor& gate, const Tensor& up, Tensor dgate,
                     Tensor dup) {
    for (const auto& [name, tensor] : {std::pair<const char*, const Tensor&>{"dy", dy},
                                       {"gate", gate},
                                       {"up", up},
                                       {"dgate", dgate},
                                       {"dup", dup}}) {
        detail::check_floating("swiglu_backward", name, tensor);
        detail::check_shape("swiglu_backward", name, tensor, gate.shape());
    }
    TANDEM_ROUTE(swiglu_backward, dy, gate, up, dgate, dup);
}

}  // namespace tandem::ops
