#include "engine_adapter/sglang/checkpoint_delivery.h"

#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <utility>

#include "common/error.h"
#include "engine_adapter/checkpoint_engine/sender.h"
#include "engine_adapter/checkpoint_engine/zmq_api.h"
#include "engine_adapter/gpu_staging/exported.h"
#include "engine_adapter/http_api/pending_call.h"

namespace tandem::engine {
namespace {

constexpr const char* kRoute = "POST /update_weights_from_ipc";

}  // namespace

SglangCheckpointEngine::SglangCheckpointEngine(const SglangServer& server, const SglangInfo& info,
                                               const std::string& key, Device device,
                                               const ConnectOptions& options)
    : model_(info.model.directory),
      staging_(options.staging),
      stager_(info.tensors, server.name(), device, packed_bytes(options)),
      beside_(server.name(), key) {
    zmq::loaded();  // throws here, and not in a pause
}

void SglangCheckpointEngine::finish(std::int64_t version, const ops::Checksum& manifest, Deadline) {
    stager_.finish(version, manifest);
}

void SglangCheckpointEngine::note(const std::string& server, std::int64_t version) {
    stager_.note(server, staging_, model_, version);
}

std::vector<BucketTensor> SglangCheckpointEngine::bucket(const PackedChunk& chunk) const {
    std::vector<BucketTensor> tensors;
    for (const std::size_t i : chunk.tensors) {
        const TensorInfo& tensor = stager_.tensors()[i];
        tensors.push_back({tensor.name, tensor.shape, tensor.dtype, stager_.layout().begin[i]});
    }
    return tensors;
}

// Where it fails once a bucket may have been loaded, nobody can tell what the weights are.
SglangAnswer SglangCheckpointEngine::load_paused(SglangServer&, Deadline deadline) {
    SglangAnswer answer;
    bool loading = false;
    std::optional<PendingCall> call;  // ends only when the sender has, one way or the other
    try {
        const TorchCudaMemory memory = exported_memory(stager_, 0, stager_.layout().bytes);
        // One that has not been answered may still begin.
        const auto returned = [&] { return call && call->check() && !answer.phase.empty(); };
        checkpoint_engine::Sender sender({beside_.name(), {"GPU-" + memory.device_uuid}, returned});
        const nlohmann::json body = {{"zmq_handles", sender.zmq_handles()}, {"flush_cache", false}};
        call.emplace([&] {
            answer = beside_.update_from_ipc(body.dump(), deadline);
            if (answer.update != SglangUpdate::done)
                throw TransportError(beside_.name(), answer.phase, answer.why);
        });
        sender.open(std::span(&memory, 1), deadline);
        loading = true;
        for (const PackedChunk& chunk : stager_.layout().chunks) sender.load(bucket(chunk), deadline);
        sender.end(deadline);
        call->wait();
    } catch (const Error& error) {
        call.reset();
        if (loading) return {SglangUpdate::unknown, kRoute, error.what()};
        if (answer.phase.empty()) throw;
        answer.update = SglangUpdate::refused;
        const auto* transport = dynamic_cast<const TransportError*>(&error);
        if (transport == nullptr || transport->peer() != beside_.name())
            answer.why = error.what();  // of the worker, which says more
    }
    return answer;
}

}  // namespace tandem::engine
