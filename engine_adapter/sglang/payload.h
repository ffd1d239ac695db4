// What SGLang's /update_weights_from_tensor takes with load_format "flattened_bucket": for each of its tensor-parallel
// ranks a pickle, in base64, of one flat uint8 tensor and of what lies in it. The tensor itself stays where it is, in
// shared memory or on a GPU; the pickle says how to open it, in the terms of PyTorch's multiprocessing, and of nothing
// else: SGLang opens pickles by a list of what they may name.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "engine_adapter/torch_pickle/tensors.h"

namespace tandem::engine {

// A file of shm_open, as PyTorch's strategy file_system shares storages: a header of kTorchHeaderBytes that begins with
// an int32 count of who has it open, then the bytes. Whoever opens it counts up and then down twice in all, and removes
// the file at 0: begin with a large count to keep it.
inline constexpr std::uint64_t kTorchHeaderBytes = 64;
struct TorchSharedFile {
    std::string name;         // "/NAME"
    std::uint64_t bytes = 0;  // behind the header
};

// The pickles. Throw InvalidArgument: a tensor that does not lie in the flat one, or not on a multiple of its dtype's
// size.
std::string flattened_bucket(const TorchSharedFile& file, std::span<const BucketTensor> tensors);
std::string flattened_bucket(const TorchCudaMemory& memory, std::span<const BucketTensor> tensors);

// The body of the update: the same pickle for each of the server's tensor-parallel ranks.
std::string tensor_update_body(const std::string& pickle, std::size_t ranks);

}  // namespace tandem::engine
