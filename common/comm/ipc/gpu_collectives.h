// The collectives for memory of a GPU. The ranks meet on the host as they do for memory of the CPU; data then
// moves on the GPU: each reads its peers' arenas with copies and reductions of its own, ordered by events.
// The caller waits for its peers' calls, not for their data.
#pragma once

#include <memory>
#include <vector>

#include "common/comm/communicator.h"
#include "common/comm/ipc/collectives.h"
#include "common/comm/ipc/gpu.h"
#include "common/comm/ipc/group.h"

namespace tandem::comm::ipc {

// A group's calls on a GPU; made with its first one there.
class GpuGroup {
  public:
    // Not collective: two members may exchange messages while others use no GPU.
    GpuGroup(Group& group, OnCpu& on_cpu, std::shared_ptr<Gpu> gpu);

    Device device() const { return gpu_->device(); }
    void all_gather(const std::vector<GatherItem>& items, Stream& stream);
    void reduce_scatter(const std::vector<ReduceScatterItem>& items, ReduceOp op, Stream& stream);
    void all_reduce(Span inout, DType dtype, ReduceOp op, Stream& stream);
    void broadcast(Span memory, int root, Stream& stream);
    void all_to_all(const AllToAllItem& item, Stream& stream);
    void p2p(const std::vector<P2POp>& ops, Stream& stream);
    void barrier(Stream& stream);

  private:
    friend class GpuCall;
    // Memory of the arenas for data that lies elsewhere. Grows; the stream is drained first.
    Span staging(std::size_t bytes, Stream& stream);
    void make_turns();
    void answer(const std::vector<P2POp>& ops);
    void await_answers(const std::vector<P2POp>& ops, Stream& stream);
    // Later work of the stream starts when all members' streams are here.
    void sync(Stream& stream, const char* what, Deadline deadline);

    Group& group_;
    OnCpu& on_cpu_;
    std::shared_ptr<Gpu> gpu_;
    std::vector<std::unique_ptr<SyncEvents>> turns_;  // two, used in turns; from the first collective on
    SyncEvents sent_;                                 // point-to-point
    SyncEvents taken_;
    std::uint64_t syncs_ = 0;
    std::vector<std::uint32_t> announced_to_;  // [member], so far
    std::shared_ptr<Buffer> staging_;
};

}  // namespace tandem::comm::ipc
