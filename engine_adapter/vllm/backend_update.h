// What vLLM 0.32's own weight-transfer backends "ipc", "nccl" and "sparse_nccl" are told of an update (update_info), and the session
// that their updates are part of: start, one update or several, finish.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>

#include "common/deadline.h"
#include "engine_adapter/engine.h"
#include "engine_adapter/torch_pickle/tensors.h"
#include "engine_adapter/vllm/server.h"

namespace tandem::engine {

using Tensors = std::span<const TensorInfo* const>;

// Names, dtypes and shapes: all that "nccl" is told, whose bytes come beside.
nlohmann::json update_info(Tensors tensors);
// "sparse_nccl": of each tensor so many elements, their indices before them.
nlohmann::json sparse_update_info(Tensors tensors, std::span<const std::uint64_t> counts);
// "ipc", packed: the bytes of all tensors one behind the other, from the memory's beginning on. Without tensors it says
// where the memory is, and no more: a worker opens it.
nlohmann::json packed_ipc_update(const TorchCudaMemory& memory, Tensors tensors);
// "ipc", not packed: each tensor in memory of its own.
nlohmann::json ipc_update(std::span<const TorchCudaMemory> memory, Tensors tensors);

// Opens an update session in every worker. One that a killed pusher left open is closed before. broken: an update may
// have ended between the weights of a layer; what vLLM keeps of those would be counted among the new ones, so that
// layer is brought to an end first.
void open_update(VllmServer& server, bool broken, Deadline deadline);
// Every layer has its weights. The server goes on saying the version that it says.
void close_update(VllmServer& server, Deadline deadline);
// After an update that failed before a worker had loaded a tensor: whether all workers have the weights from before in
// their places again.
bool take_back_update(VllmServer& server, Deadline deadline);

}  // namespace tandem::engine
