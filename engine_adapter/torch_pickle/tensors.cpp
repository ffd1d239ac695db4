#include "engine_adapter/torch_pickle/tensors.h"

#include <algorithm>

#include "common/error.h"

namespace tandem::engine {
namespace pickle {
namespace {

constexpr std::size_t kHandleBytes = 64;

std::string unsigned_integer(std::uint64_t value) {
    return integer(static_cast<std::int64_t>(value));
}

// As a tensor's, without the torch.Size around them.
std::string contiguous_strides(const Shape& shape) {
    Values strides(shape.size());
    std::int64_t stride = 1;
    for (std::size_t i = shape.size(); i-- > 0;) {
        strides[i] = integer(stride);
        stride *= std::max<std::int64_t>(shape[i], 1);
    }
    return tuple(strides);
}

}  // namespace

std::string reduction(std::string_view name) {
    return global("torch.multiprocessing.reductions", name);
}

std::string torch_size(const Shape& shape) {
    Values sizes;
    for (const std::int64_t size : shape) sizes.push_back(integer(size));
    return call(global("torch", "Size"), {tuple(sizes)});
}

std::string torch_dtype(DType dtype) {
    return global("torch", dtype_name(dtype));
}

Values rebuild_cuda_arguments(const TorchCudaMemory& memory, const Shape& shape, DType dtype,
                              const std::string& device) {
    require(memory.handle.size() == kHandleBytes, "an IPC handle of {} bytes", memory.handle.size());
    const std::uint64_t bytes = static_cast<std::uint64_t>(numel(shape)) * dtype_size(dtype);
    require(bytes <= memory.bytes, "a tensor of {} bytes in memory of {}", bytes, memory.bytes);
    return {global("torch", "Tensor"),
            torch_size(shape),
            contiguous_strides(shape),
            integer(0),  // where it begins in the storage
            global("torch.storage", "TypedStorage"),
            torch_dtype(dtype),
            device,
            pickle::bytes(memory.handle),
            unsigned_integer(memory.bytes),
            unsigned_integer(memory.offset),
            boolean(false),  // requires_grad
            pickle::bytes(memory.counter_file),
            unsigned_integer(memory.counter_slot),
            pickle::bytes(std::string(kHandleBytes, '\0')),
            boolean(false)};  // no event to wait for
}

}  // namespace pickle

std::uint64_t bytes_within(const BucketTensor& tensor, std::uint64_t bucket_bytes) {
    const std::uint64_t size = dtype_size(tensor.dtype);
    const std::uint64_t bytes = static_cast<std::uint64_t>(numel(tensor.shape)) * size;
    require(tensor.begin <= bucket_bytes && bytes <= bucket_bytes - tensor.begin,
            "{} is not within the {} bytes of its bucket", tensor.name, bucket_bytes);
    require(tensor.begin % size == 0, "{} begins at byte {} of its bucket", tensor.name, tensor.begin);
    return bytes;
}

std::string base64(std::string_view bytes) {
    constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    std::string text;
    text.reserve((bytes.size() + 2) / 3 * 4);
    for (std::size_t i = 0; i < bytes.size(); i += 3) {
        std::uint32_t group = 0;
        const std::size_t there = std::min<std::size_t>(3, bytes.size() - i);
        for (std::size_t j = 0; j < there; ++j)
            group |= std::uint32_t{static_cast<unsigned char>(bytes[i + j])} << (16 - 8 * j);
        for (std::size_t j = 0; j < 4; ++j) text += j <= there ? kDigits[(group >> (18 - 6 * j)) & 63u] : '=';
    }
    return text;
}

}  // namespace tandem::engine
