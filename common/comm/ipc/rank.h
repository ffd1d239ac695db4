// This process's (or thread's) rank in a job: its heap, its timeout, and the groups that it leads.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "common/comm/ipc/gpu.h"
#include "common/comm/ipc/group.h"
#include "common/comm/ipc/job.h"
#include "common/device/memory.h"

namespace tandem::comm::ipc {

struct Rank {
    // Takes rank `rank` of the job. Throws InvalidArgument when it is taken already.
    Rank(std::shared_ptr<Job> job, int rank);

    std::string name() const { return "rank " + std::to_string(index); }

    std::shared_ptr<Job> job;
    int index;
    bool may_spin;  // no more ranks than cores
    std::unique_ptr<MemoryPool> heap;
    MemoryPool* pool;
    std::atomic<std::int64_t> timeout_ms{60'000};

    // This rank's memory on a GPU, made when it is first asked for.
    std::shared_ptr<Gpu> gpu(Device device);
    std::shared_ptr<Gpu> gpu_if_any(Device device);  // null: not used yet

    // Finds, or as the first of `ranks` creates, the block of a new group.
    GroupBlock& join(const std::string& group_name, const std::vector<int>& ranks);

  private:
    // Null: not there yet. Throws ProtocolError when the leader's list leads out of the job's memory, or nowhere.
    GroupBlock* find(int leader, const std::string& group_name, const std::vector<int>& ranks,
                     std::uint32_t occurrence) const;

    std::mutex mutex_;
    std::map<int, std::shared_ptr<Gpu>> gpus_;  // by device index
    std::vector<Buffer> led_;                   // blocks of the groups that this rank leads
    std::map<std::pair<std::string, std::vector<int>>, std::uint32_t> joined_;  // how often, by this rank
};

}  // namespace tandem::comm::ipc
