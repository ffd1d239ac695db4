// Delivers to vLLM's backend "sparse_nccl", which is sent the elements that changed: of each tensor, in the checkpoint's
// coordinates, int32 indices and new elements, broadcast to every worker (worker_group.h).
//
//   the server says           it is sent
//   the version that this     the elements that differ from that version, which is kept beside the staged one; they
//   connection brought last   are found before the pause. Where none does, its workers are told nothing
//   anything else: nothing    every element of every tensor, with its index: 3 times the bytes in bfloat16, twice in
//   came from here yet, a     float32. There is no other way by this backend, so one push by itself
//   delivery failed, somebody (tandem-sync push) is cheaper by "nccl"; a session pays it once
//   else pushed
//
// A worker writes what it is sent into its weights in place and undoes nothing, so a failure inside leaves it with a
// mixture: it stays paused, and the next push, whole, heals it. Updates come in calls of about packed_bytes; a worker
// makes of each tensor in a call one of its whole size, NaN where nothing changed (of 512 MiB of them at a time). So NaN
// cannot be sent, and is refused before the pause; tensors that are not float32, bfloat16 or float16, or have more than
// 2^31 - 1 elements, when it connects.
//
// Takes of this process's GPU two versions (staged, delivered) and two chunks of packed_bytes; of its host memory what
// changed, as gpu_staging/changed_runs.h has it (as many bytes as a version at most), and a chunk's indices.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "common/device/export.h"
#include "engine_adapter/gpu_staging/changed_runs.h"
#include "engine_adapter/gpu_staging/gpu_stager.h"
#include "engine_adapter/vllm/delivery.h"
#include "engine_adapter/vllm/worker_group.h"

namespace tandem::engine {

class SparseDelivery final : public VllmDelivery {
  public:
    // Throws BadInput naming a tensor that this backend cannot be sent.
    SparseDelivery(VllmServer& server, const VllmInfo& info, const std::string& key, Device device,
                   const ConnectOptions& options, Deadline deadline);

    VersionStager& stager() override { return stager_; }
    Device device() const override { return stager_.device(); }
    void finish(VllmServer& server, std::int64_t version, const ops::Checksum& manifest,
                Deadline deadline) override;
    void note(const std::string& server, std::int64_t version) override;
    void deliver(VllmServer& server, std::int64_t version, bool broken, Deadline deadline) override;

  private:
    using Run = std::vector<ChangedRun>::const_iterator;
    bool server_holds_delivered(VllmServer& server, Deadline deadline) const;
    void find_changes(bool known);
    Run end_of_call(Run first) const;
    std::uint64_t bytes_of(const ChangedRun& run) const;
    void send(Run first, Run last, Deadline deadline);
    // Copies the runs, of one tensor, to the chunk: their indices, then their elements.
    std::vector<Span> place(Run first, Run last, std::uint64_t& at, std::vector<Buffer>& in_flight);

    GpuStager stager_;
    std::filesystem::path model_;
    std::filesystem::path staging_;
    std::uint64_t packed_bytes_;
    ChangedRuns changed_;
    ExportArena delivered_;               // laid out as the staged version
    std::int64_t delivered_version_ = 0;  // 0: what the server holds is not known
    std::vector<ChangedRun> runs_;        // of the last finish()
    ExportArena chunk_;                   // of a call: a tensor's indices, its elements, the next one's …
    WorkerGroup group_;                   // reads it
};

}  // namespace tandem::engine
