// Delivers by checkpoint-engine's protocol (checkpoint_engine/sender.h): the version is staged on the GPU of an SGLang server's
// only rank, which opens it there by CUDA IPC and is told bucket by bucket what to load. It answers each once it has read
// it: the memory is free when the load has ended, whatever became of the server's answer.
//
// Its requests are ended before: a call that waited for them beyond the push's deadline would leave the rank waiting for a
// sender that is gone. Where the rank fails before its first bucket, it keeps the weights that it has. The server needs the package
// checkpoint-engine beside SGLang; both ends need libzmq, this one only here.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "engine_adapter/gpu_staging/gpu_stager.h"
#include "engine_adapter/sglang/delivery.h"
#include "engine_adapter/torch_pickle/tensors.h"

namespace tandem::engine {

class SglangCheckpointEngine final : public SglangDelivery {
  public:
    SglangCheckpointEngine(const SglangServer& server, const SglangInfo& info, const std::string& key,
                           Device device, const ConnectOptions& options);

    VersionStager& stager() override { return stager_; }
    Device device() const override { return stager_.device(); }
    void finish(std::int64_t version, const ops::Checksum& manifest, Deadline deadline) override;
    void note(const std::string& server, std::int64_t version) override;
    SglangAnswer load_paused(SglangServer& server, Deadline deadline) override;

  private:
    std::vector<BucketTensor> bucket(const PackedChunk& chunk) const;

    std::filesystem::path model_;
    std::filesystem::path staging_;
    GpuStager stager_;
    SglangServer beside_;  // for the call that the rank answers only when this end has done its half
};

}  // namespace tandem::engine
