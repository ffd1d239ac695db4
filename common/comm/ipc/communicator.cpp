#include "common/comm/ipc/communicator.h"

#include <algorithm>
#include <set>

#include "common/comm/ipc/collectives.h"
#include "common/comm/ipc/p2p.h"
#include "common/comm/ipc/rank.h"
#include "common/comm/ipc/reduce.h"
#include "common/error.h"

namespace tandem::comm::ipc {
namespace {

// What queued work needs, so that it may outlive the communicator.
struct Core {
    Core(std::shared_ptr<Rank> rank, GroupBlock& block, std::string name, std::vector<int> ranks)
        : group(std::move(rank), block, std::move(name), std::move(ranks)) {}
    Group group;
    Scratch scratch;
};

class IpcCommunicator final : public Communicator {
  public:
    IpcCommunicator(std::shared_ptr<Rank> rank, GroupBlock& block, std::string name, std::vector<int> ranks)
        : core_(std::make_shared<Core>(std::move(rank), block, std::move(name), std::move(ranks))) {}

    int rank() const override { return core_->group.index(); }
    int size() const override { return core_->group.size(); }
    const std::vector<int>& global_ranks() const override { return core_->group.ranks(); }
    const std::string& name() const override { return core_->group.name(); }
    MemoryPool& memory() override { return *core_->group.rank().pool; }
    SharedMemory shared_memory() const override {
        const Job& job = core_->group.job();
        return job.is_solo() ? SharedMemory{} : SharedMemory{job.memory(), job.fd()};
    }
    void set_timeout(std::chrono::milliseconds timeout) override {
        require(timeout.count() > 0, "a timeout of {} ms", timeout.count());
        core_->group.rank().timeout_ms.store(timeout.count());
    }
    std::chrono::milliseconds timeout() const override {
        return std::chrono::milliseconds(core_->group.rank().timeout_ms.load());
    }
    void abort(const std::string& reason) noexcept override {
        core_->group.job().abort(core_->group.rank().name(), reason);
    }

    Work all_gather(std::span<const GatherItem> items, Stream& stream) override {
        const auto n = static_cast<std::size_t>(size());
        for (const auto& item : items) {
            require(item.recv.bytes == n * item.send.bytes,
                    "all_gather on '{}': recv has {} bytes, {} times {} are needed", name(), item.recv.bytes,
                    n, item.send.bytes);
        }
        return launch(stream, [list = std::vector(items.begin(), items.end())](Core& core) {
            ipc::all_gather(core.group, core.scratch, list);
        });
    }

    Work reduce_scatter(std::span<const ReduceScatterItem> items, ReduceOp op, Stream& stream) override {
        const auto n = static_cast<std::size_t>(size());
        for (const auto& item : items) {
            require(item.dtype == DType::float32 || item.dtype == DType::bfloat16,
                    "reduce_scatter on '{}' of {}; float32 and bfloat16 are possible", name(),
                    dtype_name(item.dtype));
            require(item.send.bytes == n * item.recv.bytes,
                    "reduce_scatter on '{}': send has {} bytes, {} times {} are needed", name(),
                    item.send.bytes, n, item.recv.bytes);
            require(item.recv.bytes % dtype_size(item.dtype) == 0, "reduce_scatter on '{}': {} bytes of {}",
                    name(), item.recv.bytes, dtype_name(item.dtype));
            require(!item.accumulate || item.dtype == DType::float32,
                    "reduce_scatter on '{}' accumulates in float32 only", name());
        }
        return launch(stream, [list = std::vector(items.begin(), items.end()), op](Core& core) {
            ipc::reduce_scatter(core.group, core.scratch, list, op);
        });
    }

    Work all_reduce(Span inout, DType dtype, ReduceOp op, Stream& stream) override {
        require_reducible(dtype, op);
        require(inout.bytes % dtype_size(dtype) == 0, "all_reduce on '{}': {} bytes of {}", name(),
                inout.bytes, dtype_name(dtype));
        return launch(stream,
                      [=](Core& core) { ipc::all_reduce(core.group, core.scratch, inout, dtype, op); });
    }

    Work broadcast(Span memory, int root, Stream& stream) override {
        require(root >= 0 && root < size(), "broadcast on '{}' from member {} of {}", name(), root, size());
        return launch(stream, [=](Core& core) { ipc::broadcast(core.group, core.scratch, memory, root); });
    }

    Work all_to_all(const AllToAllItem& item, Stream& stream) override {
        const auto n = static_cast<std::size_t>(size());
        require(item.send_bytes.size() == n && item.recv_bytes.size() == n,
                "all_to_all on '{}' with {} send sizes and {} receive sizes for {} ranks", name(),
                item.send_bytes.size(), item.recv_bytes.size(), n);
        std::size_t sent = 0;
        std::size_t received = 0;
        for (std::size_t p = 0; p < n; ++p) {
            sent += item.send_bytes[p];
            received += item.recv_bytes[p];
        }
        require(sent == item.send.bytes && received == item.recv.bytes,
                "all_to_all on '{}': sizes add up to {} sent and {} received, memory has {} and {}", name(),
                sent, received, item.send.bytes, item.recv.bytes);
        return launch(stream, [item](Core& core) { ipc::all_to_all(core.group, core.scratch, item); });
    }

    Work p2p(std::span<const P2POp> ops, Stream& stream) override {
        for (const auto& op : ops) {
            require(op.peer >= 0 && op.peer < size(), "p2p on '{}' with member {} of {}", name(), op.peer,
                    size());
        }
        return launch(
            stream, [list = std::vector(ops.begin(), ops.end())](Core& core) { ipc::p2p(core.group, list); });
    }

    Work barrier(Stream& stream) override {
        return launch(stream, [](Core& core) { ipc::barrier(core.group, core.scratch); });
    }

    std::shared_ptr<Communicator> split(const std::vector<int>& ranks,
                                        const std::string& group_name) override {
        const auto& members = global_ranks();
        for (const int rank : ranks) {
            require(std::find(members.begin(), members.end(), rank) != members.end(),
                    "split '{}': rank {} is not in '{}'", group_name, rank, name());
        }
        require(std::set<int>(ranks.begin(), ranks.end()).size() == ranks.size(),
                "split '{}': a rank comes twice", group_name);
        const std::shared_ptr<Rank> self = core_->group.shared_rank();
        require(std::find(ranks.begin(), ranks.end(), self->index) != ranks.end(),
                "split '{}' called by {}, a stranger", group_name, self->name());
        return std::make_shared<IpcCommunicator>(self, self->join(group_name, ranks), group_name, ranks);
    }

  private:
    // Queues `body`. Operations of one communicator run in the order of the calls, also when they are queued
    // on different streams.
    template <typename Body>
    Work launch(Stream& stream, Body body) {
        if (last_.poll() != Poll::done) stream.wait(last_);
        stream.enqueue([core = core_, body = std::move(body)] { run(*core, body); });
        last_ = stream.record();
        return Work(last_);
    }

    // Calls that do not agree fail on every rank alike, and transport errors are known to all. Anything else,
    // such as a full heap, happened to this rank alone: the others would wait for it.
    template <typename Body>
    static void run(Core& core, const Body& body) {
        try {
            body(core);
        } catch (const TransportError&) {
            throw;
        } catch (const InvalidArgument&) {
            throw;
        } catch (const std::exception& error) {
            core.group.job().abort(core.group.rank().name(), error.what());
            throw;
        }
    }

    std::shared_ptr<Core> core_;
    Event last_;
};

}  // namespace

std::shared_ptr<Communicator> make_world(std::shared_ptr<Job> job, int rank) {
    auto self = std::make_shared<Rank>(std::move(job), rank);
    std::vector<int> ranks(static_cast<std::size_t>(self->job->world_size()));
    for (std::size_t r = 0; r < ranks.size(); ++r) ranks[r] = static_cast<int>(r);
    GroupBlock& block = self->job->world_block();
    return std::make_shared<IpcCommunicator>(std::move(self), block, "world", std::move(ranks));
}

}  // namespace tandem::comm::ipc
