// The half of an Engine that third-party servers share which are handed whole versions: buckets are staged in memory of
// this process (version_stager.h), and nothing of the server is touched before commit. What a server is told then, and what it
// serves after a failure, is its own folder's (vllm/engine.h, sglang/engine.h).
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine_adapter/engine.h"
#include "engine_adapter/hf_directory/version_stager.h"

namespace tandem::engine {

class StagingEngine : public Engine {
  public:
    const Capabilities& capabilities() const override { return capabilities_; }
    void attach(const std::vector<Region>& regions, const TransferPlan& plan, Deadline deadline) override;
    void release(Deadline deadline) override;
    double probe(std::uint64_t offset, std::uint64_t bytes, std::uint64_t piece_bytes,
                 Deadline deadline) override;
    // A version that this Engine committed, while the server says that it has it.
    Held held(Deadline deadline) override;
    void begin(std::int64_t version, Deadline deadline) override;
    BucketLoader& buckets() override { return stager(); }

    // These throw BadInput: the server takes whole versions, and cannot tell which bytes it holds.
    double verify(std::span<const ops::Checksum> checksums, Deadline deadline) override;
    void adopt(std::uint64_t shift, std::span<const ops::Checksum> checksums, Deadline deadline) override;
    std::vector<ops::Checksum> checksums(Deadline deadline) override;

  protected:
    // rollback: the first version need not be above the server's.
    StagingEngine(Capabilities capabilities, const std::filesystem::path& staging, bool rollback)
        : capabilities_(std::move(capabilities)), staging_(staging), rollback_(rollback) {}

    virtual VersionStager& stager() = 0;
    virtual std::string weight_version(Deadline deadline) = 0;  // as the server says it
    void committed(std::int64_t version, const ops::Checksum& manifest);

    Capabilities capabilities_;
    std::filesystem::path staging_;
    Held held_;

  private:
    bool rollback_;  // until the first commit
};

}  // namespace tandem::engine
