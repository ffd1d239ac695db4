// Carries out what the trainer asks, one request at a time. Knows the state machine and the weights, not the
// socket.
//
//   state   attach, probe,   pause,   begin   load,          verify,        commit           abort   trainer
//           release          resume           load_delta     adopt                                   lost
//   idle    idle             idle     open    error          error          error            idle*   idle*
//   open    error            error    error   open | idle*   open | idle*   idle | idle*     idle*   idle*
//
// idle*: the push is over, with what PushState::end says; after the bar: when the request fails. Errors are
// ProtocolErrors, or BadInput for what this engine cannot do, except the target's own. Versions only grow, unless a push
// says that it goes back.
//
// After a commit that followed adopt the engine reads its weights in the trainer's memory. On the CPU that
// stays mapped for as long, even when the trainer is gone. A GPU's memory goes with the process that
// allocated it: a trainer that leaves in order (release) lets the engine copy its weights to its own memory
// first; after one that is lost the engine refuses until the next version. The first bucket of a later
// version turns the engine back to its own memory.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine_adapter/receiver/attachment.h"
#include "engine_adapter/receiver/bucket_receiver.h"
#include "engine_adapter/receiver/changes.h"
#include "engine_adapter/receiver/copy_probe.h"
#include "engine_adapter/receiver/ipc_handle_cache.h"
#include "engine_adapter/receiver/push_state.h"
#include "engine_adapter/receiver/version_progress.h"
#include "engine_adapter/receiver/weight_writer.h"

namespace tandem::engine {

class VersionUpdate {
  public:
    VersionUpdate(WeightTarget& target, int copy_threads);

    Capabilities capabilities(const std::string& engine, int depth) const;
    Held held() const;
    Device device() const { return writer_.device(); }  // of the weights
    // The trainer's GPU memory, on the weights' device. Throws ProtocolError (the weights are on the CPU),
    // IpcRefused.
    MappedRegion map(const RegionHandle& handle, std::size_t bytes,
                     const std::vector<RegionEvent>& written = {});
    void attach(std::vector<MappedRegion> regions, TransferPlan plan);
    const TransferPlan& plan() const { return attached_->plan(); }  // attached
    // Call before the trainer frees its memory: unmaps it. Weights that the engine reads in place on a GPU
    // are copied to its own memory first, at the same version; the engine must be paused.
    void release();
    // The trainer is gone: ends its push and unmaps its memory, but not what the engine reads in place on the CPU.
    void lose_trainer(const std::string& reason);
    // Functions that return a double return milliseconds of work.
    double probe(std::uint64_t offset, std::uint64_t bytes, std::uint64_t piece_bytes);

    void pause(Deadline deadline);
    double packed_ms() const { return target_.packed_ms(); }
    void resume();
    const PushState& push() const { return push_; }

    // rollback: the version need not be above those that were committed before.
    void begin(std::int64_t version, bool rollback = false);
    // `receiver`: receives the bytes, where regions are not mapped.
    double load(std::int64_t index, std::span<const ops::Checksum> checksums,
                BucketReceiver* receiver = nullptr);
    // Whether relay works for what is attached.
    bool relays();
    // All buckets, each as its ranks write it. verify must follow, and then reads nothing again.
    double relay(const RelayOrder& order);
    // The same of no version, to memory that is not read, as probe has it.
    double probe_relay(const RelayOrder& order, const RelayProbe& probe);
    double load_delta(std::int64_t index, std::span<const DeltaEntry> entries,
                      ChangesReceiver* receiver = nullptr);
    double verify(std::span<const ops::Checksum> checksums);
    void adopt(std::uint64_t shift, std::span<const ops::Checksum> checksums);
    // resume follows at once: for an engine of one rank alone.
    void commit(std::int64_t version, const ops::Checksum& manifest, bool resume = false);
    void abort(const std::string& reason);  // nothing when nothing is under way
    std::vector<ops::Checksum> checksums();

  private:
    void require_open(const char* what) const;
    void require_own_weights(const char* what) const;
    void require_relays(const RelayOrder& order);
    std::string why_no_base() const;
    void write_own_memory();
    void point_to_own_memory();
    void copy_to_own_memory();
    void detach();
    template <typename Work>
    double attempt(Work&& work);

    WeightTarget& target_;
    const std::vector<TensorInfo> tensors_;
    WeightWriter writer_;
    Changes changes_;
    IpcHandleCache handles_;
    std::unique_ptr<Attachment> attached_;
    std::optional<VersionProgress> progress_;  // of the attached plan
    PushState push_;
    std::int64_t newest_ = 0;     // of all versions that were committed or loaded
    bool broken_ = false;         // a push left no version to serve; until the next commit
    bool has_base_ = false;       // the open version began over a whole one of the engine's own
    std::vector<Span> adopted_;   // of the open version; empty: not adopted
    std::vector<Span> in_place_;  // where the engine reads its weights; empty: in its own memory
    Held held_;                   // of the last commit
    std::string last_abort_;      // why there is no open version, for messages
    // [transfer] What relay found, while nothing else was written; or none.
    std::vector<ops::Checksum> relayed_;
    CopyProbe probe_;
};

}  // namespace tandem::engine
