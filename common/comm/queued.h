// Shared by the backends whose collectives run on a thread of the host: arguments are checked, then the call
// is queued on its stream. A backend writes Operations and Collectives; QueuedCommunicator makes a communicator of them.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/comm/communicator.h"

namespace tandem::comm {

// The operations of one group as blocking calls, one at a time.
class Operations {
  public:
    virtual ~Operations() = default;
    virtual void all_gather(const std::vector<GatherItem>& items) = 0;
    virtual void reduce_scatter(const std::vector<ReduceScatterItem>& items, ReduceOp op) = 0;
    virtual void all_reduce(Span inout, DType dtype, ReduceOp op) = 0;
    virtual void broadcast(Span memory, int root) = 0;
    virtual void all_to_all(const AllToAllItem& item) = 0;
    virtual void p2p(const std::vector<P2POp>& ops) = 0;
    virtual void barrier() = 0;
};

// One group: its operations, and the rest. Queued work holds it, so it may outlive the communicator.
class Collectives {
  public:
    virtual ~Collectives() = default;
    virtual int index() const = 0;  // in the group
    virtual const std::vector<int>& ranks() const = 0;
    virtual const std::string& name() const = 0;

    virtual Operations& on_cpu() = 0;  // on memory of the CPU
    // Calls `body` with operations on memory of the stream's GPU, which launch there. The default throws
    // InvalidArgument.
    virtual void on_gpu(Stream& stream, const std::function<void(Operations&)>& body);

    virtual std::shared_ptr<Collectives> split(const std::vector<int>& ranks, const std::string& name) = 0;
    virtual MemoryPool& memory() = 0;
    virtual MemoryPool* memory(Device gpu);  // null: none that peers reach
    virtual std::size_t trim_memory(Device gpu);
    virtual SharedMemory shared_memory() const { return {}; }
    virtual void set_timeout(std::chrono::milliseconds timeout) = 0;
    virtual std::chrono::milliseconds timeout() const = 0;
    virtual void abort(const std::string& reason) noexcept = 0;
    virtual std::optional<AbortNote> aborted() const = 0;
    virtual void check_members(std::string_view /*what*/) const {}  // whose processes have ended
};

class QueuedCommunicator final : public Communicator {
  public:
    explicit QueuedCommunicator(std::shared_ptr<Collectives> collectives);

    int rank() const override { return collectives_->index(); }
    int size() const override { return static_cast<int>(collectives_->ranks().size()); }
    const std::vector<int>& global_ranks() const override { return collectives_->ranks(); }
    const std::string& name() const override { return collectives_->name(); }

    using Communicator::all_gather;
    using Communicator::all_reduce;
    using Communicator::barrier;
    using Communicator::broadcast;
    Work all_gather(std::span<const GatherItem> items, Stream& stream) override;
    Work reduce_scatter(std::span<const ReduceScatterItem> items, ReduceOp op, Stream& stream) override;
    Work all_reduce(Span inout, DType dtype, ReduceOp op, Stream& stream) override;
    Work broadcast(Span memory, int root, Stream& stream) override;
    Work all_to_all(const AllToAllItem& item, Stream& stream) override;
    Work p2p(std::span<const P2POp> ops, Stream& stream) override;
    Work barrier(Stream& stream) override;
    std::shared_ptr<Communicator> split(const std::vector<int>& ranks, const std::string& name) override;

    MemoryPool& memory() override { return collectives_->memory(); }
    MemoryPool& memory(Device device) override;
    std::size_t trim_memory(Device device) override;
    SharedMemory shared_memory() const override { return collectives_->shared_memory(); }
    void set_timeout(std::chrono::milliseconds timeout) override;
    std::chrono::milliseconds timeout() const override { return collectives_->timeout(); }
    void abort(const std::string& reason) noexcept override { collectives_->abort(reason); }
    std::optional<AbortNote> aborted() const override { return collectives_->aborted(); }
    void check_members(std::string_view what) const override {
        collectives_->check_members(what);
        Communicator::check_members(what);
    }

  private:
    Work launch(Stream& stream, std::function<void(Operations&)> body);

    std::shared_ptr<Collectives> collectives_;
    Event last_;
};

}  // namespace tandem::comm
