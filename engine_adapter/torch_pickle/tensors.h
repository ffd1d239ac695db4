// Tensors in shared memory as PyTorch's multiprocessing tells them from one process to another: pickled values that say
// where the memory is and how to read it. None of its bytes are in them. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "common/tensor/dtype.h"
#include "common/tensor/shape.h"
#include "engine_adapter/torch_pickle/pickle.h"

namespace tandem::engine {

// Memory of a GPU, by its IPC handle. What wrote it must have been synchronised with.
struct TorchCudaMemory {
    std::string device_uuid;   // "f0a1…-…": as str(torch.cuda.get_device_properties(i).uuid)
    std::string handle;        // the 64 bytes of a cudaIpcMemHandle_t
    std::uint64_t bytes = 0;   // of the memory
    std::uint64_t offset = 0;  // of the memory in the handle's allocation
    std::string counter_file;  // shm_open's name of a file of PyTorch's reference counters; need not be there
    std::uint64_t counter_slot = 0;  // in that file, one for each rank that opens the payload
};

// A tensor in a flat uint8 tensor, the bucket.
struct BucketTensor {
    std::string name;
    Shape shape;
    DType dtype = DType::float32;
    std::uint64_t begin = 0;  // in the bucket; a multiple of the dtype's size
};
// Its bytes. Throws InvalidArgument: it does not lie in a bucket of `bucket_bytes`, or not on a multiple of its dtype's
// size.
std::uint64_t bytes_within(const BucketTensor& tensor, std::uint64_t bucket_bytes);

namespace pickle {

// What torch.multiprocessing.reductions calls `name`.
std::string reduction(std::string_view name);
std::string torch_size(const Shape& shape);
std::string torch_dtype(DType dtype);

// The arguments of rebuild_cuda_tensor for a contiguous tensor at the beginning of `memory`. device: what stands for the
// GPU there, a number or a UUID. Throws InvalidArgument: no handle, or memory that is too small for the tensor.
Values rebuild_cuda_arguments(const TorchCudaMemory& memory, const Shape& shape, DType dtype,
                              const std::string& device);

}  // namespace pickle

std::string base64(std::string_view bytes);  // standard, with padding

}  // namespace tandem::engine
