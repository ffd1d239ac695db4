// Deliver the staged version as tensors that the ranks of an SGLang server open where they lie (payload.h): in shared memory,
// all at once; or on the GPU of its only rank, by CUDA IPC, chunk by chunk, each copied before the rank answers.
#pragma once

#include <optional>
#include <string>

#include "engine_adapter/gpu_staging/gpu_stager.h"
#include "engine_adapter/hf_directory/stager.h"
#include "engine_adapter/sglang/delivery.h"
#include "engine_adapter/sglang/shared_bucket.h"

namespace tandem::engine {

class SglangSharedTensors final : public SglangDelivery {
  public:
    SglangSharedTensors(const SglangServer& server, const SglangInfo& info, const ConnectOptions& options);

    VersionStager& stager() override { return stager_; }
    void finish(std::int64_t version, const ops::Checksum& manifest, Deadline deadline) override;
    void note(const std::string& server, std::int64_t) override { staged_->note(server); }
    SglangAnswer load_paused(SglangServer& server, Deadline deadline) override;
    void drop() noexcept override { bucket_.reset(); }

  private:
    std::vector<TensorInfo> tensors_;
    std::size_t ranks_;
    bool sessions_;
    Stager stager_;
    const StagedDirectory* staged_ = nullptr;  // of the last finish()
    std::optional<SharedBucket> bucket_;       // of that
};

class SglangCudaTensors final : public SglangDelivery {
  public:
    SglangCudaTensors(const SglangServer& server, const SglangInfo& info, Device device,
                      const ConnectOptions& options);

    VersionStager& stager() override { return stager_; }
    Device device() const override { return stager_.device(); }
    void finish(std::int64_t version, const ops::Checksum& manifest, Deadline deadline) override;
    void note(const std::string& server, std::int64_t version) override;
    SglangAnswer load_paused(SglangServer& server, Deadline deadline) override;

  private:
    bool sessions_;
    std::filesystem::path model_;
    std::filesystem::path staging_;
    GpuStager stager_;
};

}  // namespace tandem::engine
