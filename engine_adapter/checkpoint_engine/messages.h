// What checkpoint-engine's workers are sent: one Python pickle a message. Read in checkpoint_engine/worker.py of 0.1.2,
// which SGLang 0.5.15 and 0.5.23 ask for, and of 0.4.2. Pure.
//
//   message   pickle                                        what the worker does               answer
//   buffer    (rebuild_cuda_tensor, its 15 arguments)       opens a uint8 tensor               "", or why not (0.4.2)
//   bucket    [{"name", "dtype", "shape", "offset"}, …]     loads them out of it, synchronises  the same
//   end       None                                          0.1.2: ends the load, and leaves   ""
//                                                           0.4.2: gives the buffer back       ""
//   end       None                                          0.4.2: ends the load, and leaves   ""
//   failure   RuntimeError                                  raises it, and leaves              none
// After an answer that says why not, 0.4.2 waits for a message; 0.1.2 leaves without an answer where it fails.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "engine_adapter/torch_pickle/tensors.h"

namespace tandem::engine::checkpoint_engine {

// All of `memory`; the worker puts its own number in the place of the device.
std::string buffer_message(const TorchCudaMemory& memory);
// Throws InvalidArgument: a tensor that is not within the buffer, or not on a multiple of its dtype's size.
std::string bucket_message(std::span<const BucketTensor> tensors, std::uint64_t buffer_bytes);
std::string end_message();
std::string failure_message(std::string_view why);

}  // namespace tandem::engine::checkpoint_engine
