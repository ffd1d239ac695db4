#include "engine_adapter/vllm/delivery.h"

#include "common/error.h"
#include "engine_adapter/gpu_staging/exported.h"
#include "engine_adapter/vllm/directory_delivery.h"
#include "engine_adapter/vllm/ipc_delivery.h"
#include "engine_adapter/vllm/nccl_delivery.h"
#include "engine_adapter/vllm/sparse_delivery.h"

namespace tandem::engine {
namespace {

Device gpu_here(const std::string& backend, const VllmServer& server, const ConnectOptions& options) {
    const Device gpu = staging_gpu(options);
    enforce(
        is_here(gpu),
        "{} takes weights from a GPU alone (its weight-transfer backend is \"{}\"), and {} is not there for "
        "this process: start the server without --weight-transfer-config, and it is given a directory in "
        "shared memory, or with tandem's plug-in",
        server.name(), backend, to_string(gpu));
    return gpu;
}

}  // namespace

std::unique_ptr<VllmDelivery> make_delivery(const std::string& backend, VllmServer& server,
                                            const VllmInfo& info, const std::string& key,
                                            const ConnectOptions& options, Deadline deadline) {
    if (backend != "ipc" && backend != "nccl" && backend != "sparse_nccl") {
        require_loads_directories(server, info);
        return std::make_unique<DirectoryDelivery>(server, info, options);
    }
    const Device gpu = gpu_here(backend, server, options);
    if (backend == "ipc") return std::make_unique<IpcDelivery>(server, info, gpu, options, deadline);
    if (backend == "sparse_nccl")
        return std::make_unique<SparseDelivery>(server, info, key, gpu, options, deadline);
    return std::make_unique<NcclDelivery>(server, info, key, gpu, options, deadline);
}

}  // namespace tandem::engine
