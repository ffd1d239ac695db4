#include "engine_adapter/sglang/payload.h"

#include <nlohmann/json.hpp>

#include "engine_adapter/torch_pickle/pickle.h"

namespace tandem::engine {
namespace {

using pickle::reduction;
using pickle::torch_dtype;
using pickle::torch_size;
using pickle::Values;

std::string integer(std::uint64_t value) {
    return pickle::integer(static_cast<std::int64_t>(value));
}

// [begin, end) in bytes, since a bucket may hold several dtypes.
std::string metadata(const BucketTensor& tensor, std::uint64_t flat_bytes) {
    const std::uint64_t bytes = bytes_within(tensor, flat_bytes);
    return pickle::call(pickle::global("sglang.srt.weight_sync.tensor_bucket", "FlattenedTensorMetadata"),
                        {pickle::text(tensor.name), torch_size(tensor.shape), torch_dtype(tensor.dtype),
                         integer(tensor.begin), integer(tensor.begin + bytes), integer(bytes)});
}

std::string bucket(const std::string& flat, std::uint64_t bytes, std::span<const BucketTensor> tensors) {
    Values all;
    for (const BucketTensor& tensor : tensors) all.push_back(metadata(tensor, bytes));
    return pickle::document(pickle::dict(
        {{pickle::text("flattened_tensor"), flat}, {pickle::text("metadata"), pickle::list(all)}}));
}

}  // namespace

// PyTorch starts its own manager of shared files where it is named none.
std::string flattened_bucket(const TorchSharedFile& file, std::span<const BucketTensor> tensors) {
    const std::string untyped =
        pickle::call(reduction("rebuild_storage_filename"),
                     {pickle::global("torch.storage", "UntypedStorage"), pickle::bytes(""),
                      pickle::bytes(file.name), integer(file.bytes)});
    const std::string typed =
        pickle::call(reduction("rebuild_typed_storage"), {untyped, torch_dtype(DType::uint8)});
    const Shape shape{static_cast<std::int64_t>(file.bytes)};
    const std::string how =
        pickle::tuple({integer(0), torch_size(shape), pickle::tuple({integer(1)}), pickle::boolean(false)});
    const std::string flat =
        pickle::call(reduction("rebuild_tensor"), {pickle::global("torch", "Tensor"), typed, how});
    return bucket(flat, file.bytes, tensors);
}

std::string flattened_bucket(const TorchCudaMemory& memory, std::span<const BucketTensor> tensors) {
    const Shape shape{static_cast<std::int64_t>(memory.bytes)};
    const std::string uuid = pickle::text(memory.device_uuid);  // SGLang's patch looks the device up by it
    const std::string flat = pickle::call(reduction("rebuild_cuda_tensor"),
                                          pickle::rebuild_cuda_arguments(memory, shape, DType::uint8, uuid));
    return bucket(flat, memory.bytes, tensors);
}

std::string tensor_update_body(const std::string& pickle, std::size_t ranks) {
    const nlohmann::json body = {{"serialized_named_tensors", Values(ranks, base64(pickle))},
                                 {"load_format", "flattened_bucket"},
                                 {"flush_cache", false}};
    return body.dump();
}

}  // namespace tandem::engine
