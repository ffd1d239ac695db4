// An engine rank in the NCCL group of a trainer: takes its buckets' bytes into memory on its own GPU, from
// where they are copied into the weights. The trainer says over the channel when to join and what comes.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "common/comm/nccl/handle.h"
#include "common/device/export.h"
#include "engine_adapter/transport/nccl/runs.h"
#include "engine_adapter/transport/nccl/wire.h"

namespace tandem::engine {

// Used by one thread at a time. Every wait ends at its deadline, or when `check` throws.
class NcclMember {
  public:
    using Check = comm::nccl::Handle::Check;

    // Without `api`: NCCL as it is found when the first group is joined.
    NcclMember(Device device, const comm::nccl::Api* api) : device_(device), api_(api) {}
    ~NcclMember() { drop(); }
    NcclMember(const NcclMember&) = delete;
    NcclMember& operator=(const NcclMember&) = delete;

    // Which GPU of which host: two ranks of a group may not share one. Throws ProtocolError when the weights
    // are on the CPU.
    std::string seat() const;
    // Collective over the group; ends a former one. Throws DeadlineExceeded, TransportError, CudaError,
    // DeviceUnavailable.
    void join(const comm::nccl::UniqueId& id, int rank, int size, Deadline deadline, const Check& check);
    // The orderly end, collective; drop does not wait for anybody.
    void leave();
    void drop() noexcept;

    // A plan that has been checked; makes room for its largest bucket. Throws OutOfMemory, ProtocolError.
    void prepare(const TransferPlan& plan);
    void forget();  // the plan, and the room

    // Returns when the bucket's bytes are here. After a throw this rank is in no group.
    void bring(int bucket, NcclForm form, Deadline deadline, const Check& check);
    // Where a byte of the bucket brought last lies now.
    const std::byte* at(std::uint32_t region, std::uint64_t offset) const;

  private:
    const comm::nccl::Api& api();
    void await(const Event& done, const std::string& phase, Deadline deadline, const Check& check);

    const Device device_;
    const comm::nccl::Api* api_;
    std::optional<Stream> stream_;
    std::optional<comm::nccl::Handle> handle_;
    std::vector<Runs> buckets_;
    ExportArena room_;  // plain device memory
    const Runs* here_ = nullptr;
};

}  // namespace tandem::engine
