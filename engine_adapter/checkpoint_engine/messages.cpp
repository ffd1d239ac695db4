#include "engine_adapter/checkpoint_engine/messages.h"

#include "engine_adapter/torch_pickle/pickle.h"

namespace tandem::engine::checkpoint_engine {

std::string buffer_message(const TorchCudaMemory& memory) {
    const Shape shape{static_cast<std::int64_t>(memory.bytes)};
    const pickle::Values arguments =
        pickle::rebuild_cuda_arguments(memory, shape, DType::uint8, pickle::integer(0));
    return pickle::document(
        pickle::tuple({pickle::reduction("rebuild_cuda_tensor"), pickle::tuple(arguments)}));
}

std::string bucket_message(std::span<const BucketTensor> tensors, std::uint64_t buffer_bytes) {
    pickle::Values all;
    for (const BucketTensor& tensor : tensors) {
        bytes_within(tensor, buffer_bytes);
        all.push_back(pickle::dict(
            {{pickle::text("name"), pickle::text(tensor.name)},
             {pickle::text("dtype"), pickle::torch_dtype(tensor.dtype)},
             {pickle::text("shape"), pickle::torch_size(tensor.shape)},
             {pickle::text("offset"), pickle::integer(static_cast<std::int64_t>(tensor.begin))}}));
    }
    return pickle::document(pickle::list(all));
}

std::string end_message() {
    return pickle::document(pickle::none());
}

std::string failure_message(std::string_view why) {
    return pickle::document(pickle::call(pickle::global("builtins", "RuntimeError"), {pickle::text(why)}));
}

}  // namespace tandem::engine::checkpoint_engine
