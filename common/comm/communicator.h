// Collectives between the ranks of a group. Every call is queued on a stream, in the same order on every rank
// of the group, and returns a Work. A list of transfers in one call is one launch: it lands in its final
// places, with one rendezvous for all of it.
//
// Rules that hold for every backend:
//  - Collectives of one communicator run in the order of the calls; calls come from one thread at a time.
//  - Reductions add in rank order 0, 1, … n-1 in fp32 (bf16 inputs widen and round once), so repetition is
//    bit-identical.
//  - A group of one moves nothing but what must land elsewhere, and never waits.
//  - The stream says where the memory is: on a GPU's stream all spans are that GPU's, and the caller waits
//    for its peers' calls at most; on a stream of the CPU they are host memory.
//  - Memory from memory() is reached by peers without staging; any other memory is correct and slower.
//  - A wait past the communicator's timeout throws DeadlineExceeded naming the ranks that did not arrive, and
//    aborts.
//  - abort() may be called from any thread; every pending and later call of every rank then throws
//    TransportError.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/deadline.h"
#include "common/device/memory.h"
#include "common/device/stream.h"
#include "common/tensor/dtype.h"

namespace tandem::comm {

enum class ReduceOp : std::uint8_t { sum, avg, max, min };

// One gather: recv.bytes = size() * send.bytes; rank r's bytes land at r * send.bytes. send may be that very
// place in recv (in place).
struct GatherItem {
    ConstSpan send;
    Span recv;
};

// One reduce-scatter: send.bytes = size() * recv.bytes; rank r receives the reduced r-th piece.
// Elements are `dtype`, float32 or bfloat16, on both sides; the sum is float32.
struct ReduceScatterItem {
    ConstSpan send;
    Span recv;
    DType dtype = DType::float32;
    bool accumulate = false;  // recv += result instead of recv = result (float32 only)
};

// One all-to-all: send_bytes[r] go to rank r, recv_bytes[r] come from it; both packed in rank order.
struct AllToAllItem {
    ConstSpan send;
    Span recv;
    std::vector<std::size_t> send_bytes;
    std::vector<std::size_t> recv_bytes;
};

// One side of a point-to-point transfer. Sends and receives of one batch cannot deadlock each other.
struct P2POp {
    enum class Kind : std::uint8_t { send, recv } kind = Kind::send;
    int peer = 0;  // rank in this group
    Span memory;   // read by send, written by recv
};

// A launched operation. Copyable; dropping it does not cancel anything.
class Work {
  public:
    Work() = default;
    // `check`, once the event is done: throws when what it marks was cut short.
    explicit Work(Event event, std::function<void()> check = {})
        : event_(std::move(event)), check_(std::move(check)) {}
    Poll poll() const;
    void wait(Deadline deadline) const;
    const Event& event() const { return event_; }  // for Stream::wait

  private:
    Event event_;
    std::function<void()> check_;
};

// The rank that aborted the job, and its reason.
struct AbortNote {
    std::string who;
    std::string reason;
};

// Memory that other processes of this host may map too.
struct SharedMemory {
    Span memory;  // this process's mapping; empty: none
    int fd = -1;  // borrowed
};

class Communicator {
  public:
    virtual ~Communicator() = default;

    virtual int rank() const = 0;  // in this group
    virtual int size() const = 0;
    virtual const std::vector<int>& global_ranks() const = 0;  // of the group's members, in group order
    virtual const std::string& name() const = 0;               // "world", "dp", … for messages

    virtual Work all_gather(std::span<const GatherItem> items, Stream& stream) = 0;
    virtual Work reduce_scatter(std::span<const ReduceScatterItem> items, ReduceOp op, Stream& stream) = 0;
    virtual Work all_reduce(Span inout, DType dtype, ReduceOp op,
                            Stream& stream) = 0;  // float32, bfloat16, int64
    virtual Work broadcast(Span memory, int root, Stream& stream) = 0;
    virtual Work all_to_all(const AllToAllItem& item, Stream& stream) = 0;
    virtual Work p2p(std::span<const P2POp> ops, Stream& stream) = 0;
    virtual Work barrier(Stream& stream) = 0;

    // A sub-group, in the order given (global ranks). Collective over the members only; they must call with
    // equal lists. Groups share the parent's transport, abort and timeout.
    virtual std::shared_ptr<Communicator> split(const std::vector<int>& global_ranks,
                                                const std::string& name) = 0;

    virtual MemoryPool& memory() = 0;
    // The same on a device; on a GPU, memory that peers reach. Throws InvalidArgument where the backend moves
    // memory of the CPU only. Blocks follow the rules of device_pool().
    virtual MemoryPool& memory(Device device);
    // Collective, on the communicator of all ranks, while no call of any group runs: gives the unused blocks
    // of memory(device) and the staging memory of calls back to the device. Later calls allocate them again.
    // Returns this rank's bytes. Does nothing where the backend keeps none.
    virtual std::size_t trim_memory(Device device);
    // The memory behind memory() of all ranks, for engines that read it; empty where it is private.
    virtual SharedMemory shared_memory() const { return {}; }
    // Whether the ranks of this group read and write each other's memory(), of the CPU, in place.
    virtual bool shares_memory() const { return shared_memory().memory.bytes > 0; }
    // Collective, of ranks that share memory: what each shows of its memory(), bytes[r] long rank r's, as this rank reaches it.
    // Valid while its owner keeps it; who may write when is the callers' matter. Throws ProtocolError.
    virtual std::vector<Span> show(Span own, std::span<const std::size_t> bytes);
    virtual void set_timeout(std::chrono::milliseconds timeout) = 0;  // default 60 s
    virtual std::chrono::milliseconds timeout() const = 0;
    virtual void abort(const std::string& reason) noexcept = 0;
    virtual std::optional<AbortNote> aborted() const { return std::nullopt; }
    // For waits on anything else than a call: throws TransportError when the job was aborted, or a member's process has ended,
    // which aborts it.
    virtual void check_members(std::string_view what) const;

    // Single-item and host-blocking forms, on an inline stream.
    void all_gather(ConstSpan send, Span recv);
    void all_reduce(Span inout, DType dtype, ReduceOp op = ReduceOp::sum);
    void broadcast(Span memory, int root);
    void barrier();
};

}  // namespace tandem::comm
