// Delivers as checkpoint-engine does (checkpoint_engine/): the version is staged on this process's GPU, which must be the
// server's only one too; its rank opens all of it by CUDA IPC, and loads it chunk by chunk within one request. The server
// needs the package checkpoint-engine.
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "engine_adapter/gpu_staging/gpu_stager.h"
#include "engine_adapter/sglang/delivery.h"

namespace tandem::engine {

class SglangIpc final : public SglangDelivery {
  public:
    SglangIpc(const SglangServer& server, const SglangInfo& info, const std::string& key, Device device,
              const ConnectOptions& options);

    VersionStager& stager() override { return stager_; }
    Device device() const override { return stager_.device(); }
    void finish(std::int64_t version, const ops::Checksum& manifest, Deadline deadline) override;
    void note(const std::string& server, std::int64_t version) override;
    SglangAnswer load_paused(SglangServer& server, Deadline deadline) override;
    SglangAnswer load_running(SglangServer& server, std::int64_t version, Deadline deadline) override;

  private:
    SglangAnswer load(nlohmann::json body, Deadline deadline);

    std::filesystem::path model_;
    std::filesystem::path staging_;
    GpuStager stager_;
    SglangServer beside_;  // for the call that its rank answers when the sender has ended
};

}  // namespace tandem::engine
