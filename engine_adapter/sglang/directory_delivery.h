// Delivers by a directory in shared memory, which every rank of an SGLang server loads as it loaded its model.
#pragma once

#include <string>

#include "engine_adapter/hf_directory/stager.h"
#include "engine_adapter/sglang/delivery.h"

namespace tandem::engine {

class SglangDirectory final : public SglangDelivery {
  public:
    SglangDirectory(const SglangServer& server, const SglangInfo& info, const ConnectOptions& options)
        : stager_(info.tensors, info.model.directory, options.staging, server.name(), options.share) {}

    VersionStager& stager() override { return stager_; }
    void finish(std::int64_t version, const ops::Checksum& manifest, Deadline deadline) override {
        staged_ = &stager_.finish(version, manifest, deadline);
    }
    void note(const std::string& server, std::int64_t) override { staged_->note(server); }
    SglangAnswer load_paused(SglangServer& server, Deadline deadline) override {
        return server.update_from_disk(staged_->path(), deadline);
    }
    SglangAnswer load_running(SglangServer& server, std::int64_t version, Deadline deadline) override {
        return server.update_from_disk(staged_->path(), std::to_string(version), deadline);
    }

  private:
    Stager stager_;
    const StagedDirectory* staged_ = nullptr;  // of the last finish()
};

}  // namespace tandem::engine
