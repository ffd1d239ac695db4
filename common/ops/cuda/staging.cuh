// Pinned host memory on its way to or from a GPU: blocks that are used again once the GPU is done with them.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <memory>

#include "common/device/memory.h"

namespace tandem::ops::cuda {

struct StagingBlock {
    explicit StagingBlock(std::size_t bytes, int device_in);
    ~StagingBlock();
    StagingBlock(const StagingBlock&) = delete;
    StagingBlock& operator=(const StagingBlock&) = delete;

    int device;
    cudaStream_t stream = nullptr;  // that uses it now, or did last
    Buffer memory;
    cudaEvent_t used = nullptr;  // done when the GPU has read the block
};

// A free block of at least `bytes`, for `stream`. Thread-safe, as is give_back.
std::unique_ptr<StagingBlock> take_staging(int device, cudaStream_t stream, std::size_t bytes);
// The block is free again when block->used is done.
void give_back(std::unique_ptr<StagingBlock> block);

}  // namespace tandem::ops::cuda
