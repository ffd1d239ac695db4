#include "common/comm/ipc/communicator.h"

#include <optional>

#include "common/comm/ipc/collectives.h"
#include "common/comm/ipc/gpu_collectives.h"
#include "common/comm/ipc/rank.h"
#include "common/error.h"

namespace tandem::comm::ipc {
namespace {

// The operations of a group on the memory of one GPU, on one of its streams.
class OnGpu final : public Operations {
  public:
    OnGpu(GpuGroup& gpu, Stream& stream) : gpu_(gpu), stream_(stream) {}
    void all_gather(const std::vector<GatherItem>& items) override { gpu_.all_gather(items, stream_); }
    void reduce_scatter(const std::vector<ReduceScatterItem>& items, ReduceOp op) override {
        gpu_.reduce_scatter(items, op, stream_);
    }
    void all_reduce(Span inout, DType dtype, ReduceOp op) override {
        gpu_.all_reduce(inout, dtype, op, stream_);
    }
    void broadcast(Span memory, int root) override { gpu_.broadcast(memory, root, stream_); }
    void all_to_all(const AllToAllItem& item) override { gpu_.all_to_all(item, stream_); }
    void p2p(const std::vector<P2POp>& ops) override { gpu_.p2p(ops, stream_); }
    void barrier() override { gpu_.barrier(stream_); }

  private:
    GpuGroup& gpu_;
    Stream& stream_;
};

class IpcCollectives final : public Collectives {
  public:
    IpcCollectives(std::shared_ptr<Rank> rank, GroupBlock& block, std::string name, std::vector<int> ranks)
        : group_(std::move(rank), block, std::move(name), std::move(ranks)) {}

    int index() const override { return group_.index(); }
    const std::vector<int>& ranks() const override { return group_.ranks(); }
    const std::string& name() const override { return group_.name(); }

    Operations& on_cpu() override { return on_cpu_; }
    void on_gpu(Stream& stream, const std::function<void(Operations&)>& body) override {
        if (!gpu_) gpu_.emplace(group_, on_cpu_, group_.rank().gpu(stream.device()));
        require(gpu_->device() == stream.device(), "group '{}' works on {}, and is called on a stream of {}",
                group_.name(), to_string(gpu_->device()), to_string(stream.device()));
        OnGpu operations(*gpu_, stream);
        body(operations);
    }
    std::shared_ptr<Collectives> split(const std::vector<int>& ranks, const std::string& name) override {
        const std::shared_ptr<Rank> self = group_.shared_rank();
        return std::make_shared<IpcCollectives>(self, self->join(name, ranks), name, ranks);
    }
    MemoryPool& memory() override { return *group_.rank().pool; }
    // A job of one rank has it too: engines open it.
    MemoryPool* memory(Device gpu) override { return &group_.rank().gpu(gpu)->pool(); }
    // A peer's mapping keeps memory alive that its owner has freed, and CUDA leaves open what happens then:
    // so every rank closes, all meet, and then each frees.
    std::size_t trim_memory(Device device) override {
        const std::shared_ptr<Gpu> gpu = group_.rank().gpu_if_any(device);
        if (gpu) {
            trim_device_pool(device);  // waits for what runs there
            gpu->forget();
        }
        on_cpu_.barrier();
        return gpu ? gpu->pool().trim() : 0;
    }
    SharedMemory shared_memory() const override {
        const Job& job = group_.job();
        return job.is_solo() ? SharedMemory{} : SharedMemory{job.memory(), job.fd()};
    }
    void set_timeout(std::chrono::milliseconds timeout) override {
        group_.rank().timeout_ms.store(timeout.count());
    }
    std::chrono::milliseconds timeout() const override {
        return std::chrono::milliseconds(group_.rank().timeout_ms.load());
    }
    void abort(const std::string& reason) noexcept override {
        group_.job().abort(group_.rank().name(), reason);
    }
    void check_members(std::string_view what) const override { group_.check_members(what); }
    std::optional<AbortNote> aborted() const override {
        if (!group_.job().aborted()) return std::nullopt;
        return AbortNote{group_.job().abort_who(), group_.job().abort_reason()};
    }

  private:
    Group group_;
    OnCpu on_cpu_{group_};
    std::optional<GpuGroup> gpu_;  // from the first call on a GPU on
};

}  // namespace

std::shared_ptr<Communicator> make_world(std::shared_ptr<Job> job, int rank) {
    auto self = std::make_shared<Rank>(std::move(job), rank);
    std::vector<int> ranks(static_cast<std::size_t>(self->job->world_size()));
    for (std::size_t r = 0; r < ranks.size(); ++r) ranks[r] = static_cast<int>(r);
    GroupBlock& block = self->job->world_block();
    return std::make_shared<QueuedCommunicator>(
        std::make_shared<IpcCollectives>(std::move(self), block, "world", std::move(ranks)));
}

}  // namespace tandem::comm::ipc
