// A tensor: dtype, shape, and memory that it shares with its views. Always contiguous and row-major. Copies
// are cheap and alias the same elements; the memory goes back to its pool with the last of them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "common/device/memory.h"
#include "common/device/stream.h"
#include "common/error.h"
#include "common/tensor/dtype.h"
#include "common/tensor/shape.h"

namespace tandem {

class Tensor {
  public:
    Tensor() = default;  // undefined: defined() is false

    // Contents undefined.
    static Tensor empty(Shape shape, DType dtype, std::string_view tag, MemoryPool& pool = cpu_pool());
    static Tensor zeros(Shape shape, DType dtype, std::string_view tag, MemoryPool& pool = cpu_pool());
    // The same on the stream's device, filled in the stream's order.
    static Tensor empty(Stream& stream, Shape shape, DType dtype, std::string_view tag);
    static Tensor zeros(Stream& stream, Shape shape, DType dtype, std::string_view tag);
    // Views memory that the caller keeps alive. span.bytes must cover the shape.
    static Tensor borrow(Span memory, Shape shape, DType dtype, Device device = {});
    // On the CPU. Copies the values; T gives the dtype.
    template <typename T>
    static Tensor from(std::span<const T> values, Shape shape, std::string_view tag = "host");

    bool defined() const { return data_ != nullptr || !shape_.empty(); }
    DType dtype() const { return dtype_; }
    const Shape& shape() const { return shape_; }
    std::int64_t dim(int index) const;  // negative counts from the end
    int ndim() const { return static_cast<int>(shape_.size()); }
    std::int64_t numel() const { return tandem::numel(shape_); }
    std::size_t bytes() const { return static_cast<std::size_t>(numel()) * dtype_size(dtype_); }
    Span span() const { return {data_, bytes()}; }
    std::byte* raw() const { return data_; }
    Device device() const { return device_; }

    // Throw InvalidArgument when T is not the dtype. data() may be a GPU's address; values() and to_vector()
    // are for tensors of the CPU.
    template <typename T>
    T* data() const {
        check_dtype(dtype_of<T>::value);
        return reinterpret_cast<T*>(data_);
    }
    template <typename T>
    std::span<T> values() const {
        check_host();
        return {data<T>(), static_cast<std::size_t>(numel())};
    }
    template <typename T>
    std::vector<T> to_vector() const {
        const auto all = values<T>();
        return {all.begin(), all.end()};
    }

    Tensor reshape(Shape shape) const;                                        // same numel; aliases
    Tensor rows(std::int64_t start, std::int64_t count) const;                // narrow dim 0; aliases
    Tensor clone(std::string_view tag, MemoryPool& pool = cpu_pool()) const;  // synchronous host copy
    // A copy on `device`, made in the stream's order: on the CPU it may be read when the stream is
    // synchronized past it. This tensor and the result must live until then.
    Tensor to(Stream& stream, Device device, std::string_view tag) const;
    // A copy on the CPU that may be read at once: waits for the stream.
    Tensor to_host(Stream& stream, std::string_view tag = "host") const;

  private:
    void check_dtype(DType wanted) const;
    void check_host() const;
    std::shared_ptr<Buffer> owner_;  // null for borrowed memory
    std::byte* data_ = nullptr;
    Shape shape_;
    DType dtype_ = DType::float32;
    Device device_;
};

// Copies the elements (same shape and dtype) in the stream's order, between any two devices.
void copy(Stream& stream, const Tensor& from, const Tensor& to);

// The tensor as the CPU's functions see it (common/device/cpu_kernels.h): host tensors and undefined ones as
// they are. Does not keep the memory alive.
Tensor host_alias(const Tensor& tensor);

template <typename T>
Tensor Tensor::from(std::span<const T> values, Shape shape, std::string_view tag) {
    require(static_cast<std::int64_t>(values.size()) == tandem::numel(shape),
            [&] { return fmt::format("{} values do not fill shape {}", values.size(), to_string(shape)); });
    Tensor result = empty(std::move(shape), dtype_of<T>::value, tag);
    std::copy(values.begin(), values.end(), result.data<T>());
    return result;
}

}  // namespace tandem
