#include "common/tensor/tensor.h"

#include <cstring>

namespace tandem {

std::int64_t numel(const Shape& shape) {
    std::int64_t product = 1;
    for (const std::int64_t dim : shape) product *= dim;
    return product;
}

std::string to_string(const Shape& shape) {
    std::string text = "[";
    for (std::size_t i = 0; i < shape.size(); ++i) text += (i == 0 ? "" : ", ") + std::to_string(shape[i]);
    return text + "]";
}

Tensor Tensor::empty(Shape shape, DType dtype, std::string_view tag, MemoryPool& pool) {
    for (const std::int64_t dim : shape) require(dim >= 0, "negative dim in shape {}", to_string(shape));
    Tensor result;
    result.shape_ = std::move(shape);
    result.dtype_ = dtype;
    result.owner_ = std::make_shared<Buffer>(result.bytes(), tag, pool);
    result.data_ = result.owner_->data();
    return result;
}

Tensor Tensor::zeros(Shape shape, DType dtype, std::string_view tag, MemoryPool& pool) {
    Tensor result = empty(std::move(shape), dtype, tag, pool);
    if (result.bytes() > 0) std::memset(result.data_, 0, result.bytes());
    return result;
}

Tensor Tensor::borrow(Span memory, Shape shape, DType dtype) {
    Tensor result;
    result.shape_ = std::move(shape);
    result.dtype_ = dtype;
    result.data_ = memory.data;
    require(memory.bytes >= result.bytes(), "{} bytes cannot hold {} of {}", memory.bytes,
            to_string(result.shape_), dtype_name(dtype));
    return result;
}

std::int64_t Tensor::dim(int index) const {
    const int at = index < 0 ? index + ndim() : index;
    require(at >= 0 && at < ndim(), "dim {} of a tensor of shape {}", index, to_string(shape_));
    return shape_[static_cast<std::size_t>(at)];
}

Tensor Tensor::reshape(Shape shape) const {
    require(tandem::numel(shape) == numel(), "cannot view {} as {}", to_string(shape_), to_string(shape));
    Tensor result = *this;
    result.shape_ = std::move(shape);
    return result;
}

Tensor Tensor::rows(std::int64_t start, std::int64_t count) const {
    require(ndim() >= 1 && start >= 0 && count >= 0 && start + count <= shape_[0],
            "rows [{}, {}) of a tensor of shape {}", start, start + count, to_string(shape_));
    Tensor result = *this;
    const std::size_t row_bytes = shape_[0] == 0 ? 0 : bytes() / static_cast<std::size_t>(shape_[0]);
    result.shape_[0] = count;
    result.data_ += static_cast<std::size_t>(start) * row_bytes;
    return result;
}

Tensor Tensor::clone(std::string_view tag, MemoryPool& pool) const {
    Tensor result = empty(shape_, dtype_, tag, pool);
    if (bytes() > 0) std::memcpy(result.data_, data_, bytes());
    return result;
}

void Tensor::check_dtype(DType wanted) const {
    require(dtype_ == wanted, "tensor of {} read as {}", dtype_name(dtype_), dtype_name(wanted));
}

}  // namespace tandem
