#include "engine_adapter/vllm/ipc_delivery.h"

#include <nlohmann/json.hpp>

#include "common/error.h"
#include "engine_adapter/gpu_staging/exported.h"
#include "engine_adapter/vllm/backend_update.h"

namespace tandem::engine {
namespace {

// A call has a price, whatever it brings: that of a round trip to the worker (some 10 ms beside an H100).
constexpr std::uint64_t kChunkBytes = std::uint64_t{1} << 30;

}  // namespace

IpcDelivery::IpcDelivery(VllmServer& server, const VllmInfo& info, Device device,
                         const ConnectOptions& options, Deadline deadline)
    : stager_(info.tensors, server.name(), device, options.packed_bytes.value_or(kChunkBytes)),
      model_(info.model.directory),
      staging_(options.staging),
      packed_(options.packed_bytes != 0) {
    const std::int64_t workers = server.world_size(deadline);
    enforce(workers == 1,
            "{} has {} GPUs, and its backend \"ipc\" is given weights on one: start it with "
            "--weight-transfer-config '{{\"backend\":\"nccl\"}}', or without one",
            server.name(), workers);
}

void IpcDelivery::finish(VllmServer& server, std::int64_t version, const ops::Checksum& manifest,
                         Deadline deadline) {
    stager_.finish(version, manifest);
    server.init_weight_transfer({{"packed", packed_}}, deadline);
    // One that says something else may have been started anew, another way.
    opens_ = opens_ && server.weight_version(deadline) == std::to_string(delivered_);
}

void IpcDelivery::note(const std::string& server, std::int64_t version) {
    stager_.note(server, staging_, model_, version);
}

void IpcDelivery::deliver(VllmServer& server, std::int64_t version, bool broken, Deadline deadline) {
    untouched_ = false;
    open_update(server, broken, deadline);
    if (packed_) {
        if (!opens_) let_open(server, deadline);
        send_packed(server, deadline);
    } else {
        send_all(server, deadline);
    }
    close_update(server, deadline);
    delivered_ = version;
}

void IpcDelivery::let_open(VllmServer& server, Deadline deadline) {
    const PackedChunk& first = stager_.layout().chunks.front();
    const TorchCudaMemory memory = exported_memory(stager_, first.begin, first.bytes);
    try {
        server.update_weights(packed_ipc_update(memory, {}), deadline);
        opens_ = true;
    } catch (const DeadlineExceeded&) {
        throw;
    } catch (const TransportError& error) {
        untouched_ = take_back_update(server, deadline);
        throw TransportError(
            server.name(), "POST /update_weights",
            fmt::format(
                "it does not open memory of {} ({}): {}; it must be started with "
                "VLLM_ALLOW_INSECURE_SERIALIZATION=1, by the same user, on that GPU; its log says which "
                "of these is amiss",
                to_string(stager_.device()), memory.device_uuid, error.what()));
    }
}

void IpcDelivery::send_packed(VllmServer& server, Deadline deadline) {
    for (const PackedChunk& chunk : stager_.layout().chunks) {
        const std::vector<const TensorInfo*> tensors = stager_.tensors_of(chunk);
        server.update_weights(packed_ipc_update(exported_memory(stager_, chunk.begin, chunk.bytes), tensors),
                              deadline);
    }
}

void IpcDelivery::send_all(VllmServer& server, Deadline deadline) {
    std::vector<const TensorInfo*> tensors;
    std::vector<TorchCudaMemory> memory;
    for (std::size_t i = 0; i < stager_.tensors().size(); ++i) {
        tensors.push_back(&stager_.tensors()[i]);
        memory.push_back(exported_memory(stager_, stager_.layout().begin[i], tensor_bytes(*tensors.back())));
    }
    server.update_weights(ipc_update(memory, tensors), deadline);
}

}  // namespace tandem::engine
