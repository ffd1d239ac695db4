// The engine's end of a push for engines that load a whole version from a directory: takes buckets out of the trainer's
// regions, which this process has mapped, into a StagedDirectory, and compares each transfer's checksum with the
// announced one. Nothing of the engine is touched before finish(). The calls are those of the port (engine.h) with the
// same meaning, and with the same errors.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "common/deadline.h"
#include "common/device/stream.h"
#include "engine_adapter/engine.h"
#include "engine_adapter/hf_directory/shared_directory.h"
#include "engine_adapter/hf_directory/staged_directory.h"
#include "engine_adapter/receiver/attachment.h"
#include "engine_adapter/receiver/copy_probe.h"
#include "engine_adapter/receiver/version_progress.h"
#include "engine_adapter/receiver/weight_writer.h"

namespace tandem::engine {

class Stager {
  public:
    // model: whose JSON files go with the weights. peer: for messages.
    // share: the directories of a push into several servers; null: one of its own for each version.
    Stager(std::vector<TensorInfo> tensors, std::filesystem::path model, std::filesystem::path root,
           std::string peer, std::shared_ptr<StagingShare> share = nullptr);
    ~Stager();

    // Throws BadInput where a region is not mapped in this process.
    void attach(const std::vector<Region>& regions, const TransferPlan& plan);
    void release();
    double probe(std::uint64_t offset, std::uint64_t bytes, std::uint64_t piece_bytes);

    void begin(std::int64_t version);
    void load(int bucket, std::span<const ops::Checksum> checksums);  // in the background
    double wait_loaded(int bucket, Deadline deadline);

    // All of the version is there, and is what the manifest says. It stays until drop() or the next begin(). Blocks while
    // another Stager fills the directory that they share, by default for two minutes at most.
    const StagedDirectory& finish(std::int64_t version, const ops::Checksum& manifest,
                                  Deadline deadline = Deadline::after_ms(120'000));
    void drop();

  private:
    struct Bucket {
        Event done;
        double ms = 0;
        std::string error;
    };
    bool open() const { return staged_ != nullptr; }
    void copy_and_verify(int index, std::span<const ops::Checksum> checksums);

    std::vector<TensorInfo> tensors_;
    std::vector<WeightSlot> slots_;  // point into staged_ while it is there
    std::filesystem::path model_;
    std::filesystem::path root_;
    std::string peer_;
    std::optional<Attachment> attached_;
    std::optional<VersionProgress> progress_;
    std::shared_ptr<StagingShare> share_;
    std::shared_ptr<SharedDirectory> staged_;
    bool fills_ = false;   // staged_ is this one's to fill
    Announced announced_;  // of the open version
    WeightWriter writer_;
    CopyProbe probe_;
    std::map<int, std::shared_ptr<Bucket>> in_flight_;
    bool finished_ = false;
    std::string failed_;  // why the open version can only be dropped
    Stream stream_;       // last: drained before what its work uses goes away
};

}  // namespace tandem::engine
