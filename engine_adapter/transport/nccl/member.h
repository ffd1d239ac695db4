// An engine rank in the NCCL group of a trainer: receives buckets into memory on its own GPU, from where they
// are copied into the weights. The trainer says over the channel when to join and which bucket comes.
//
// Two slots take turns. The receive of a bucket is launched behind the copies that read its slot before (an
// event on NCCL's stream), and its copies behind the receive, so that one bucket arrives while the one before
// is copied and neither overtakes the other.
#pragma once

#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "common/comm/nccl/handle.h"
#include "common/device/export.h"
#include "engine_adapter/transport/nccl/messages.h"
#include "engine_adapter/transport/nccl/runs.h"

namespace tandem::engine {

// A bucket that the trainer has announced: which one comes next over NCCL, how, and by when.
struct Announced {
    std::int64_t request = 0;  // the id of the trainer's request
    int bucket = 0;
    NcclForm form = NcclForm::broadcast;
    Deadline deadline = Deadline::after_ms(0);
};

// Used by one thread at a time. Every wait ends at its deadline, or when `check` throws. Whatever throws
// while bytes are on their way leaves this rank in no group.
class NcclMember {
  public:
    using Check = comm::nccl::Handle::Check;

    // Without `api`: NCCL is found when the first group is joined.
    NcclMember(Device device, const comm::nccl::Api* api) : device_(device), api_(api) {}
    ~NcclMember() { drop(); }
    NcclMember(const NcclMember&) = delete;
    NcclMember& operator=(const NcclMember&) = delete;

    // Which GPU of which host: two ranks of a group may not share one. Throws ProtocolError when the weights
    // are on the CPU.
    std::string gpu_id() const;
    // Collective over the group; ends a former one. Throws DeadlineExceeded, TransportError, CudaError,
    // DeviceUnavailable.
    void join(const comm::nccl::UniqueId& id, int rank, int size, Deadline deadline, const Check& check);
    bool joined() const { return handle_.has_value(); }
    // Ends the group in order, collectively; drop does not wait for any peer.
    void leave();
    void drop() noexcept;

    // For a plan that has been checked: allocates slots of the largest bucket's size. Throws OutOfMemory,
    // ProtocolError.
    void prepare(const TransferPlan& plan);
    void forget();  // the plan, and the slots

    // Launches the receive of the bucket that is announced next, unless that was done. False: no slot is
    // free.
    bool start_receive(const Announced& next, const Check& check);
    // Returns when the bytes of the bucket that was announced first have arrived.
    void receive(const Announced& next, const Check& check);
    // Where a byte of the bucket received last lies, behind arrived() on a stream, until release_after().
    const std::byte* at(std::uint32_t region, std::uint64_t offset) const;
    const Event& arrived() const { return received_.arrived; }
    // Whatever reads it ends at `done`: its slot is free for another bucket behind that.
    void release_after(const Event& done);

  private:
    struct Slot {
        ExportArena memory;  // plain device memory
        Event read;          // the copies of what it held have ended
    };
    struct Receiving {
        Announced announced;
        std::size_t slot = 0;
        Event arrived;
    };
    struct Received {
        const Runs* runs = nullptr;
        std::size_t slot = 0;
        Event arrived = {};
    };
    const comm::nccl::Api& api();
    const Runs& runs_of_bucket(int bucket) const;
    void launch_receive(const Announced& next, const Slot& slot, const Check& check);
    void await(const Receiving& receiving, const Check& check);

    const Device device_;
    const comm::nccl::Api* api_;
    std::optional<Stream> stream_;
    std::optional<comm::nccl::Handle> handle_;
    std::vector<Runs> buckets_;
    std::vector<Slot> slots_;
    std::size_t next_slot_ = 0;
    bool launching_ = false;
    std::deque<Receiving> receiving_;  // launched, in the order of their announcements
    Received received_;                // the last one, until release_after()
};

}  // namespace tandem::engine
