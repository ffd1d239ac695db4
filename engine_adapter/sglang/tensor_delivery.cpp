#include "engine_adapter/sglang/tensor_delivery.h"

#include <utility>

#include "engine_adapter/gpu_staging/exported.h"
#include "engine_adapter/sglang/payload.h"

namespace tandem::engine {

// Not shared with other servers: PyTorch counts its readers in the first bytes of such a file.
SglangSharedTensors::SglangSharedTensors(const SglangServer& server, const SglangInfo& info,
                                         const ConnectOptions& options)
    : tensors_(info.tensors),
      ranks_(info.ranks),
      sessions_(info.sessions),
      stager_(info.tensors, info.model.directory, options.staging, server.name()) {}

void SglangSharedTensors::finish(std::int64_t version, const ops::Checksum& manifest, Deadline deadline) {
    staged_ = &stager_.finish(version, manifest, deadline);
    bucket_.emplace(*staged_, tensors_);
}

SglangAnswer SglangSharedTensors::load_paused(SglangServer& server, Deadline deadline) {
    const std::string body = tensor_update_body(bucket_->pickle(), ranks_);
    return in_session(server, sessions_, deadline,
                      [&] { return server.update_from_tensors(body, deadline); });
}

SglangCudaTensors::SglangCudaTensors(const SglangServer& server, const SglangInfo& info, Device device,
                                     const ConnectOptions& options)
    : sessions_(info.sessions),
      model_(info.model.directory),
      staging_(options.staging),
      stager_(info.tensors, server.name(), device, packed_bytes(options)) {}

void SglangCudaTensors::finish(std::int64_t version, const ops::Checksum& manifest, Deadline) {
    stager_.finish(version, manifest);
}

void SglangCudaTensors::note(const std::string& server, std::int64_t version) {
    stager_.note(server, staging_, model_, version);
}

SglangAnswer SglangCudaTensors::load_paused(SglangServer& server, Deadline deadline) {
    return in_session(server, sessions_, deadline, [&] {
        return by_chunks(stager_, [&](const PackedChunk& chunk) {
            std::vector<BucketTensor> tensors;
            std::uint64_t begin = 0;
            for (const TensorInfo* tensor : stager_.tensors_of(chunk)) {
                tensors.push_back({tensor->name, tensor->shape, tensor->dtype, begin});
                begin += tensor_bytes(*tensor);
            }
            const TorchCudaMemory memory = exported_memory(stager_, chunk.begin, chunk.bytes);
            return server.update_from_tensors(tensor_update_body(flattened_bucket(memory, tensors), 1),
                                              deadline);
        });
    });
}

}  // namespace tandem::engine
