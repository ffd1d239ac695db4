// An engine rank in the NCCL group of a trainer: takes its buckets' bytes into memory on its own GPU, from
// where they are copied into the weights. The trainer says over the channel when to join and what comes.
//
// Two rooms take turns. The receive of a bucket is launched behind the copies that read what lay in its room
// (an event on NCCL's stream), and the copies behind the receive, so that one bucket comes while the one
// before is copied and neither overtakes the other.
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

// A bucket that the trainer has announced: it comes next over NCCL, and by when.
struct Announced {
    std::int64_t request = 0;  // unlike any other of the trainer's
    int bucket = 0;
    NcclForm form = NcclForm::broadcast;
    Deadline deadline = Deadline::after_ms(0);
};

// Used by one thread at a time. Every wait ends at its deadline, or when `check` throws. Whatever throws
// while bytes are on their way leaves this rank in no group.
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
    bool joined() const { return handle_.has_value(); }
    // The orderly end, collective; drop does not wait for anybody.
    void leave();
    void drop() noexcept;

    // A plan that has been checked; makes room for its largest bucket, twice where there are several. Throws
    // OutOfMemory, ProtocolError.
    void prepare(const TransferPlan& plan);
    void forget();  // the plan, and the rooms

    // Launches the receive of the bucket that is announced next, unless it has been. False: not now, no room
    // is free.
    bool start(const Announced& next, const Check& check);
    // Returns when the bytes of the bucket that was announced first are here.
    void bring(const Announced& next, const Check& check);
    // Where a byte of the bucket brought last lies, behind arrived() on a stream, until reading().
    const std::byte* at(std::uint32_t region, std::uint64_t offset) const;
    const Event& arrived() const { return here_.arrived; }
    // What reads it is over at `done`: its room takes another bucket from then on.
    void reading(const Event& done);

  private:
    struct Room {
        ExportArena memory;  // plain device memory
        Event read;          // by the copies of what lay there
    };
    struct Coming {
        Announced announced;
        std::size_t room = 0;
        Event arrived;
    };
    struct Here {
        const Runs* runs = nullptr;
        std::size_t room = 0;
        Event arrived = {};
    };
    const comm::nccl::Api& api();
    const Runs& runs_of_bucket(int bucket) const;
    void receive(const Announced& next, const Room& room, const Check& check);
    void await(const Coming& coming, const Check& check);

    const Device device_;
    const comm::nccl::Api* api_;
    std::optional<Stream> stream_;
    std::optional<comm::nccl::Handle> handle_;
    std::vector<Runs> buckets_;
    std::vector<Room> rooms_;
    std::size_t next_room_ = 0;
    bool launching_ = false;
    std::deque<Coming> coming_;  // launched, in the order of their announcements
    Here here_;                  // brought, and not yet read
};

}  // namespace tandem::engine
