// The engine's end of a push for engines that are handed whole versions: takes buckets out of the trainer's regions,
// which this process reads, into memory of its own, and compares each transfer's checksum with the announced one.
// Nothing of the engine is touched. Which memory that is, and what becomes of a version that is whole, is a subclass's:
// a directory (stager.h), a GPU's (gpu_staging/). The calls are those of the port (engine.h) with the same meaning, and
// with the same errors.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/deadline.h"
#include "common/device/stream.h"
#include "engine_adapter/engine.h"
#include "engine_adapter/receiver/attachment.h"
#include "engine_adapter/receiver/copy_probe.h"
#include "engine_adapter/receiver/version_progress.h"
#include "engine_adapter/receiver/weight_writer.h"

namespace tandem::engine {

class VersionStager : public BucketLoader {
  public:
    VersionStager(const VersionStager&) = delete;
    VersionStager& operator=(const VersionStager&) = delete;

    // Throws BadInput where a region cannot be read here.
    void attach(const std::vector<Region>& regions, const TransferPlan& plan);
    void release();
    double probe(std::uint64_t offset, std::uint64_t bytes, std::uint64_t piece_bytes);

    void begin(std::int64_t version);
    void load(int bucket, std::span<const ops::Checksum> checksums, Deadline deadline) override;
    void load_delta(int bucket, std::span<const DeltaEntry> entries,
                    Deadline deadline) override;  // throws BadInput
    double wait_loaded(int bucket, Deadline deadline) override;
    void drop();  // the staged version

  protected:
    // peer: for messages.
    VersionStager(std::vector<TensorInfo> tensors, std::string peer);

    // Where regions like these are staged. Throws BadInput where one of them cannot be read here.
    virtual Device device_for(const std::vector<Region>& regions) = 0;
    // Memory of each tensor for a version. False: another stager fills the same memory.
    virtual bool take_memory(std::int64_t version, std::vector<WeightSlot>& slots) = 0;
    virtual void give_memory() noexcept = 0;  // that was taken, and is not used any more
    virtual void free_memory() noexcept {}    // the trainer's is released, too

    // All of the version is there and is what the manifest says; it stays until drop() or the next begin().
    void require_whole(std::int64_t version, const ops::Checksum& manifest) const;
    void close() { finished_ = true; }
    void drain();  // call in a subclass's destructor: until then buckets may be on their way
    bool fills() const { return fills_; }
    const std::vector<TensorInfo>& tensors() const { return tensors_; }
    const std::string& peer() const { return peer_; }
    const std::map<int, std::vector<ops::Checksum>>& announced() const { return announced_; }

  private:
    struct Bucket {
        Event done;
        double ms = 0;
        std::string error;
    };

    std::vector<TensorInfo> tensors_;
    std::vector<WeightSlot> slots_;  // have memory while a version is open
    std::string peer_;
    std::optional<Attachment> attached_;
    std::optional<VersionProgress> progress_;
    std::map<int, std::vector<ops::Checksum>> announced_;  // of the open version, by bucket
    std::optional<WeightWriter> writer_;
    CopyProbe probe_;
    std::map<int, std::shared_ptr<Bucket>> in_flight_;
    bool open_ = false;
    bool fills_ = false;  // the open version's memory is this one's to fill
    bool finished_ = false;
    std::string failed_;  // why the open version can only be dropped
    Stream stream_;       // last: drained before what its work uses goes away
};

}  // namespace tandem::engine
