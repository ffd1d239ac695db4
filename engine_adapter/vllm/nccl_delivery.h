// Delivers to vLLM's backend "nccl": the version is staged on this process's GPU and broadcast to every worker, each on
// a GPU of its own. Their group is formed before the first delivery, while the server generates, and stays
// (worker_group.h).
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "engine_adapter/gpu_staging/gpu_stager.h"
#include "engine_adapter/vllm/delivery.h"
#include "engine_adapter/vllm/worker_group.h"

namespace tandem::engine {

class NcclDelivery final : public VllmDelivery {
  public:
    NcclDelivery(VllmServer& server, const VllmInfo& info, const std::string& key, Device device,
                 const ConnectOptions& options, Deadline deadline);

    VersionStager& stager() override { return stager_; }
    Device device() const override { return stager_.device(); }
    void finish(VllmServer& server, std::int64_t version, const ops::Checksum& manifest,
                Deadline deadline) override;
    void note(const std::string& server, std::int64_t version) override;
    void deliver(VllmServer& server, std::int64_t version, bool broken, Deadline deadline) override;

  private:
    GpuStager stager_;
    std::filesystem::path model_;
    std::filesystem::path staging_;
    std::uint64_t packed_bytes_;
    WorkerGroup group_;  // reads the staged version
};

}  // namespace tandem::engine
