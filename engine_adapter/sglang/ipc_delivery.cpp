#include "engine_adapter/sglang/ipc_delivery.h"

#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "common/error.h"
#include "engine_adapter/checkpoint_engine/sender.h"
#include "engine_adapter/gpu_staging/exported.h"
#include "engine_adapter/http_api/pending_call.h"

namespace tandem::engine {

using checkpoint_engine::Sender;

namespace {

constexpr const char* kRoute = "POST /update_weights_from_ipc";

}  // namespace

SglangIpc::SglangIpc(const SglangServer& server, const SglangInfo& info, const std::string& key,
                     Device device, const ConnectOptions& options)
    : model_(info.model),
      staging_(options.staging),
      stager_(info.tensors, server.name(), device, options.packed_bytes),
      beside_(server.name(), key) {}

void SglangIpc::finish(std::int64_t version, const ops::Checksum& manifest, Deadline) {
    stager_.finish(version, manifest);
}

void SglangIpc::note(const std::string& server, std::int64_t version) {
    stager_.note(server, staging_, model_, version);
}

SglangAnswer SglangIpc::load_paused(SglangServer&, Deadline deadline) {
    return load({{"flush_cache", false}}, deadline);
}

SglangAnswer SglangIpc::load_running(SglangServer&, std::int64_t version, Deadline deadline) {
    return load({{"flush_cache", true}, {"weight_version", std::to_string(version)}}, deadline);
}

SglangAnswer SglangIpc::load(nlohmann::json body, Deadline deadline) {
    const TorchCudaMemory memory = exported_memory(stager_, 0, stager_.layout().bytes);
    SglangAnswer answer;
    bool loads = false;
    try {
        std::optional<PendingCall> call;  // ends after the sender, which frees the rank
        Sender sender({.server = beside_.name(),
                       .devices = {"GPU-" + memory.device_uuid},
                       .call_returned = [&] { return call && call->check(); }});
        body["zmq_handles"] = sender.zmq_handles();
        call.emplace([&] {
            answer = beside_.update_from_ipc(body.dump(), deadline);
            if (answer.update != SglangUpdate::done && answer.update != SglangUpdate::cached)
                throw TransportError(beside_.name(), answer.phase, answer.why);
        });
        sender.open({&memory, 1}, deadline);
        loads = true;
        for (const PackedChunk& chunk : stager_.layout().chunks) {
            std::vector<BucketTensor> tensors;
            for (const std::size_t index : chunk.tensors) {
                const TensorInfo& tensor = stager_.tensors()[index];
                tensors.push_back({tensor.name, tensor.shape, tensor.dtype, stager_.layout().begin[index]});
            }
            sender.load(tensors, deadline);
        }
        sender.end(deadline);
        call->wait();
    } catch (const Error& error) {  // the call has ended
        if (loads) return {SglangUpdate::unknown, kRoute, error.what()};
        if (answer.update != SglangUpdate::refused) throw;
    }
    return answer;
}

}  // namespace tandem::engine
