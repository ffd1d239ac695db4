// What the ops check before they touch memory; the messages name the op and the shapes.
#pragma once

#include <string_view>

#include "common/error.h"
#include "common/tensor/tensor.h"

namespace tandem::ops::detail {

inline void check_shape(std::string_view op, std::string_view name, const Tensor& tensor,
                        const Shape& wanted) {
    require(tensor.defined() && tensor.shape() == wanted, "{}: {} has shape {}, expected {}", op, name,
            to_string(tensor.shape()), to_string(wanted));
}

inline void check_dtype(std::string_view op, std::string_view name, const Tensor& tensor, DType wanted) {
    require(tensor.defined() && tensor.dtype() == wanted, "{}: {} {} is {}, expected {}", op, name,
            to_string(tensor.shape()), dtype_name(tensor.dtype()), dtype_name(wanted));
}

inline void check_floating(std::string_view op, std::string_view name, const Tensor& tensor) {
    require(tensor.defined(), "{}: {} is undefined", op, name);
    require(tensor.dtype() == DType::float32 || tensor.dtype() == DType::bfloat16,
            "{}: {} {} is {}, expected float32 or bfloat16", op, name, to_string(tensor.shape()),
            dtype_name(tensor.dtype()));
}

inline void check_ndim(std::string_view op, std::string_view name, const Tensor& tensor, int ndim) {
    require(tensor.defined() && tensor.ndim() == ndim, "{}: {} has shape {}, expected {} dims", op, name,
            to_string(tensor.shape()), ndim);
}

}  // namespace tandem::ops::detail
