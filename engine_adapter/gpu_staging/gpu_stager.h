// Stages a version in a GPU's memory that other processes can open: for servers whose workers take weights out of it,
// by CUDA IPC, or are sent them by NCCL. Takes as much of that GPU's memory as the version has bytes, from the first
// begin() to release().
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "common/device/export.h"
#include "engine_adapter/gpu_staging/packed_layout.h"
#include "engine_adapter/hf_directory/staged_directory.h"
#include "engine_adapter/hf_directory/version_stager.h"

namespace tandem::engine {

class GpuStager final : public VersionStager {
  public:
    // device: where the trainer's weights are on the CPU; else they are staged on their GPU. chunk_bytes: as of
    // lay_out_packed.
    GpuStager(std::vector<TensorInfo> tensors, std::string peer, Device device, std::uint64_t chunk_bytes);
    ~GpuStager() override;

    // All of the version is there, and is what the manifest says. It stays until drop() or the next begin().
    void finish(std::int64_t version, const ops::Checksum& manifest);

    // Leaves a text in `root` that outlives a process that is killed, until drop(): see StagedDirectory::note. `model`:
    // whose JSON files go with it.
    void note(const std::string& text, const std::filesystem::path& root, const std::filesystem::path& model,
              std::int64_t version);

    // What is staged and where, once a version has begun.
    const PackedLayout& layout() const { return layout_; }
    const std::vector<TensorInfo>& tensors() const { return VersionStager::tensors(); }
    std::vector<const TensorInfo*> tensors_of(const PackedChunk& chunk) const;
    Device device() const { return device_; }
    Span memory() const { return arena_.span(); }

  private:
    Device device_for(const std::vector<Region>& regions) override;
    bool take_memory(std::int64_t version, std::vector<WeightSlot>& slots) override;
    void give_memory() noexcept override { note_.reset(); }
    void free_memory() noexcept override { arena_ = {}; }

    const Device for_host_memory_;
    const PackedLayout layout_;
    Device device_;      // where what is attached is staged
    ExportArena arena_;  // kept from version to version
    std::optional<StagedDirectory> note_;
};

}  // namespace tandem::engine
