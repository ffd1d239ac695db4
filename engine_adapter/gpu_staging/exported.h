// Staged memory of a GPU, as processes with PyTorch are told of it; and which GPU weights are staged on.
#pragma once

#include <cstdint>

#include "engine_adapter/connect.h"
#include "engine_adapter/gpu_staging/gpu_stager.h"
#include "engine_adapter/torch_pickle/tensors.h"

namespace tandem::engine {

// That a trainer on the CPU stages on; one on a GPU stages there.
Device staging_gpu(const ConnectOptions& options);
bool is_here(Device gpu);

// [begin, begin + bytes) of the staged version.
TorchCudaMemory exported_memory(const GpuStager& stager, std::uint64_t begin, std::uint64_t bytes);

}  // namespace tandem::engine
