// Checks of an op's arguments. All throw InvalidArgument with a message that names the op and the shapes.
#pragma once

#include <string_view>

#include "common/error.h"
#include "common/tensor/tensor.h"

namespace tandem::ops::detail {

// A message is made only when it is thrown: these run for every op.

inline void check_shape(std::string_view op, std::string_view name, const Tensor& tensor,
                        const Shape& wanted) {
    if (tensor.defined() && tensor.shape() == wanted) return;
    throw InvalidArgument(fmt::format("{}: {} has shape {}, expected {}", op, name, to_string(tensor.shape()),
                                      to_string(wanted)));
}

inline void check_dtype(std::string_view op, std::string_view name, const Tensor& tensor, DType wanted) {
    if (tensor.defined() && tensor.dtype() == wanted) return;
    throw InvalidArgument(fmt::format("{}: {} {} is {}, expected {}", op, name, to_string(tensor.shape()),
                                      dtype_name(tensor.dtype()), dtype_name(wanted)));
}

inline void check_floating(std::string_view op, std::string_view name, const Tensor& tensor) {
    require(tensor.defined(), "{}: {} is undefined", op, name);
    if (tensor.dtype() == DType::float32 || tensor.dtype() == DType::bfloat16) return;
    throw InvalidArgument(fmt::format("{}: {} {} is {}, expected float32 or bfloat16", op, name,
                                      to_string(tensor.shape()), dtype_name(tensor.dtype())));
}

inline void check_ndim(std::string_view op, std::string_view name, const Tensor& tensor, int ndim) {
    if (tensor.defined() && tensor.ndim() == ndim) return;
    throw InvalidArgument(
        fmt::format("{}: {} has shape {}, expected {} dims", op, name, to_string(tensor.shape()), ndim));
}

}  // namespace tandem::ops::detail
