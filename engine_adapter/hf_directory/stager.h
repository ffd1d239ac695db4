// Stages a version as a Hugging Face directory in shared memory, for engines that load their weights from one.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "engine_adapter/hf_directory/shared_directory.h"
#include "engine_adapter/hf_directory/staged_directory.h"
#include "engine_adapter/hf_directory/version_stager.h"

namespace tandem::engine {

class Stager final : public VersionStager {
  public:
    // model: whose JSON files go with the weights. peer: for messages.
    // share: the directories of a push into several servers; null: one of its own for each version.
    Stager(std::vector<TensorInfo> tensors, std::filesystem::path model, std::filesystem::path root,
           std::string peer, std::shared_ptr<StagingShare> share = nullptr);
    ~Stager() override;

    // All of the version is there, and is what the manifest says. It stays until drop() or the next begin(). Blocks while
    // another Stager fills the directory that they share, by default for two minutes at most.
    const StagedDirectory& finish(std::int64_t version, const ops::Checksum& manifest,
                                  Deadline deadline = Deadline::after_ms(120'000));

  private:
    Device device_for(const std::vector<Region>& regions) override;
    bool take_memory(std::int64_t version, std::vector<WeightSlot>& slots) override;
    void give_memory() noexcept override;

    std::filesystem::path model_;
    std::filesystem::path root_;
    std::shared_ptr<StagingShare> share_;
    std::shared_ptr<SharedDirectory> staged_;
};

}  // namespace tandem::engine
