#include "engine_adapter/sglang/delivery.h"

#include "common/error.h"
#include "engine_adapter/gpu_staging/exported.h"
#include "engine_adapter/sglang/checkpoint_delivery.h"
#include "engine_adapter/sglang/directory_delivery.h"
#include "engine_adapter/sglang/nccl_delivery.h"
#include "engine_adapter/sglang/tensor_delivery.h"

namespace tandem::engine {

SglangAnswer SglangDelivery::load_running(SglangServer& server, std::int64_t, Deadline) {
    throw InvalidArgument(server.name() + " is told to load in several steps while it generates");
}

std::unique_ptr<SglangDelivery> make_sglang_delivery(SglangServer& server, const SglangInfo& info,
                                                     const std::string& key, const ConnectOptions& options) {
    const std::string& name = server.name();
    if (name.starts_with("sglang://")) {
        require_loads_directories(server, info);
        return std::make_unique<SglangDirectory>(server, info, options);
    }
    enforce(options.in_flight != InFlight::wait,
            "{} is given tensors in several steps, between which it must not generate: end its requests "
            "(--abort-running), keep them (--in-flight keep), or use sglang://",
            name);
    enforce(info.replicas == 1, "{} has {} data-parallel replicas, which take no tensors: use sglang://",
            name, info.replicas);
    const Device gpu = staging_gpu(options);
    const bool by_ipc = name.starts_with("sglang+ipc://");
    const bool by_nccl = name.starts_with("sglang+nccl://");
    enforce(is_here(gpu) || !(by_ipc || by_nccl),
            "{} takes weights from a GPU, and {} is not there for this process: use sglang:// or "
            "sglang+tensor://",
            name, to_string(gpu));
    if (by_ipc) {
        enforce(info.ranks == 1, "{} has {} ranks, and weights lie on the GPU of one: use sglang+nccl://",
                name, info.ranks);
        return std::make_unique<SglangCheckpointEngine>(server, info, key, gpu, options);
    }
    if (by_nccl) return std::make_unique<SglangBroadcast>(server, info, key, gpu, options);
    if (info.device == "cuda" && info.ranks == 1 && is_here(gpu))
        return std::make_unique<SglangCudaTensors>(server, info, gpu, options);
    return std::make_unique<SglangSharedTensors>(server, info, options);
}

SglangAnswer by_chunks(const GpuStager& stager,
                       const std::function<SglangAnswer(const PackedChunk&)>& update) {
    SglangAnswer answer;
    bool first = true;
    for (const PackedChunk& chunk : stager.layout().chunks) {
        answer = update(chunk);
        if (answer.update == SglangUpdate::refused && !first) answer.update = SglangUpdate::unknown;
        if (answer.update != SglangUpdate::done) return answer;
        first = false;
    }
    return answer;
}

SglangAnswer in_session(SglangServer& server, bool sessions, Deadline deadline,
                        const std::function<SglangAnswer()>& load) {
    if (sessions) server.begin_update(deadline);
    const SglangAnswer answer = load();
    const bool known = answer.update == SglangUpdate::done || answer.update == SglangUpdate::refused;
    if (sessions && known) server.end_update(deadline);
    return answer;
}

}  // namespace tandem::engine
