#include "common/tensor/tensor.h"

#include <cstring>

#include "common/device/cpu_kernels.h"

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
    for (const std::int64_t dim : shape)
        require(dim >= 0, [&] { return fmt::format("negative dim in shape {}", to_string(shape)); });
    Tensor result;
    result.shape_ = std::move(shape);
    result.dtype_ = dtype;
    result.owner_ = std::make_shared<Buffer>(result.bytes(), tag, pool);
    result.data_ = result.owner_->data();
    result.device_ = pool.device();
    return result;
}

Tensor Tensor::zeros(Shape shape, DType dtype, std::string_view tag, MemoryPool& pool) {
    Tensor result = empty(std::move(shape), dtype, tag, pool);
    result.check_host();
    if (result.bytes() > 0) std::memset(result.data_, 0, result.bytes());
    return result;
}

Tensor Tensor::empty(Stream& stream, Shape shape, DType dtype, std::string_view tag) {
    return empty(std::move(shape), dtype, tag, device_pool(stream.device()));
}

Tensor Tensor::zeros(Stream& stream, Shape shape, DType dtype, std::string_view tag) {
    Tensor result = empty(stream, std::move(shape), dtype, tag);
    fill_zero(stream, result.span());
    return result;
}

Tensor Tensor::borrow(Span memory, Shape shape, DType dtype, Device device) {
    Tensor result;
    result.device_ = device;
    result.shape_ = std::move(shape);
    result.dtype_ = dtype;
    result.data_ = memory.data;
    require(memory.bytes >= result.bytes(), [&] {
        return fmt::format("{} bytes cannot hold {} of {}", memory.bytes, to_string(result.shape_),
                           dtype_name(dtype));
    });
    return result;
}

std::int64_t Tensor::dim(int index) const {
    const int at = index < 0 ? index + ndim() : index;
    require(at >= 0 && at < ndim(),
            [&] { return fmt::format("dim {} of a tensor of shape {}", index, to_string(shape_)); });
    return shape_[static_cast<std::size_t>(at)];
}

Tensor Tensor::reshape(Shape shape) const {
    require(tandem::numel(shape) == numel(),
            [&] { return fmt::format("cannot view {} as {}", to_string(shape_), to_string(shape)); });
    Tensor result = *this;
    result.shape_ = std::move(shape);
    return result;
}

Tensor Tensor::rows(std::int64_t start, std::int64_t count) const {
    require(ndim() >= 1 && start >= 0 && count >= 0 && start + count <= shape_[0], [&] {
        return fmt::format("rows [{}, {}) of a tensor of shape {}", start, start + count, to_string(shape_));
    });
    Tensor result = *this;
    const std::size_t row_bytes = shape_[0] == 0 ? 0 : bytes() / static_cast<std::size_t>(shape_[0]);
    result.shape_[0] = count;
    result.data_ += static_cast<std::size_t>(start) * row_bytes;
    return result;
}

Tensor Tensor::clone(std::string_view tag, MemoryPool& pool) const {
    Tensor result = empty(shape_, dtype_, tag, pool);
    check_host();
    result.check_host();
    if (bytes() > 0) std::memcpy(result.data_, data_, bytes());
    return result;
}

Tensor Tensor::to(Stream& stream, Device device, std::string_view tag) const {
    Tensor result = empty(shape_, dtype_, tag, device_pool(device));
    copy(stream, *this, result);
    return result;
}

Tensor Tensor::to_host(Stream& stream, std::string_view tag) const {
    Tensor result = to(stream, Device{}, tag);
    stream.synchronize();
    return result;
}

void copy(Stream& stream, const Tensor& from, const Tensor& to) {
    require(from.shape() == to.shape() && from.dtype() == to.dtype(), [&] {
        return fmt::format("copy of {} {} into {} {}", dtype_name(from.dtype()), to_string(from.shape()),
                           dtype_name(to.dtype()), to_string(to.shape()));
    });
    copy(stream, from.span(), to.span());
}

Tensor host_alias(const Tensor& tensor) {
    if (!tensor.defined() || tensor.device().type == DeviceType::cpu) return tensor;
    return Tensor::borrow(tandem::host_alias(tensor.span()), tensor.shape(), tensor.dtype());
}

void Tensor::check_host() const {
    require(device_.type == DeviceType::cpu, [&] {
        return fmt::format("a tensor of {} is on {}, where the host cannot read it: copy it with to_host()",
                           to_string(shape_), to_string(device_));
    });
}

void Tensor::check_dtype(DType wanted) const {
    require(dtype_ == wanted, "tensor of {} read as {}", dtype_name(dtype_), dtype_name(wanted));
}

}  // namespace tandem
