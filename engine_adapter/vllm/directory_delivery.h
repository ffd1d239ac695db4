// Delivers by a directory in shared memory, which every worker of a vLLM server loads as it loaded its model: for
// servers on a CPU, and without a weight-transfer backend.
#pragma once

#include <string>

#include "engine_adapter/hf_directory/stager.h"
#include "engine_adapter/vllm/delivery.h"

namespace tandem::engine {

class DirectoryDelivery final : public VllmDelivery {
  public:
    DirectoryDelivery(const VllmServer& server, const VllmInfo& info, const ConnectOptions& options)
        : stager_(info.tensors, info.model.directory, options.staging, server.name(), options.share) {}

    VersionStager& stager() override { return stager_; }
    void finish(VllmServer&, std::int64_t version, const ops::Checksum& manifest,
                Deadline deadline) override {
        staged_ = &stager_.finish(version, manifest, deadline);
    }
    void note(const std::string& server, std::int64_t) override { staged_->note(server); }
    void deliver(VllmServer& server, std::int64_t, bool, Deadline deadline) override {
        server.reload_weights(staged_->path(), deadline);
    }

  private:
    Stager stager_;
    const StagedDirectory* staged_ = nullptr;  // of the last finish()
};

}  // namespace tandem::engine
