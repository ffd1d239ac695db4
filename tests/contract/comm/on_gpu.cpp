#include "tests/contract/comm/on_gpu.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>
#include <optional>
#include <vector>

#include "common/comm/queued.h"

namespace tandem::comm::contract {
namespace {

// Host blocks whose addresses say that they stand for memory(device).
class StandIn final : public MemoryPool {
  public:
    Device device() const override { return {}; }
    std::byte* allocate(std::size_t bytes) override {
        std::byte* data = cpu_pool().allocate(bytes);
        const std::lock_guard lock(mutex_);
        blocks_[data] = bytes;
        return data;
    }
    void release(std::byte* data, std::size_t bytes) noexcept override {
        {
            const std::lock_guard lock(mutex_);
            blocks_.erase(data);
        }
        cpu_pool().release(data, bytes);
    }
    bool holds(ConstSpan memory) const {
        const std::lock_guard lock(mutex_);
        auto after = blocks_.upper_bound(const_cast<std::byte*>(memory.data));
        if (after == blocks_.begin()) return false;
        --after;
        return memory.data + memory.bytes <= after->first + after->second;
    }

  private:
    mutable std::mutex mutex_;
    std::map<std::byte*, std::size_t> blocks_;
};

class OnGpu final : public Collectives, private Operations {
  public:
    OnGpu(std::shared_ptr<Communicator> inner, Device device, std::shared_ptr<StandIn> memory)
        : inner_(std::move(inner)),
          device_(device),
          memory_(std::move(memory)),
          stream_(Stream::make(device, "contract")) {}

    int index() const override { return inner_->rank(); }
    const std::vector<int>& ranks() const override { return inner_->global_ranks(); }
    const std::string& name() const override { return inner_->name(); }
    Operations& on_cpu() override { return *this; }

    void all_gather(const std::vector<GatherItem>& items) override {
        std::vector<Buffer> buffers;
        std::vector<GatherItem> there;
        std::vector<std::pair<Span, Span>> back;
        for (const auto& item : items) {
            const Span recv = take(item.recv, buffers);
            back.emplace_back(recv, item.recv);
            there.push_back({inside(item.send, item.recv, recv, buffers), recv});
        }
        finish([&] { return inner_->all_gather(there, stream_); }, back);
    }
    void reduce_scatter(const std::vector<ReduceScatterItem>& items, ReduceOp op) override {
        std::vector<Buffer> buffers;
        std::vector<ReduceScatterItem> there;
        std::vector<std::pair<Span, Span>> back;
        for (const auto& item : items) {
            const Span whole{const_cast<std::byte*>(item.send.data), item.send.bytes};
            const Span send = take(whole, buffers);
            const Span recv = inside(item.recv, whole, send, buffers);
            there.push_back({send, recv, item.dtype, item.accumulate});
            back.emplace_back(recv, item.recv);
        }
        finish([&] { return inner_->reduce_scatter(there, op, stream_); }, back);
    }
    void all_reduce(Span inout, DType dtype, ReduceOp op) override {
        std::vector<Buffer> buffers;
        const Span there = take(inout, buffers);
        finish([&] { return inner_->all_reduce(there, dtype, op, stream_); }, {{there, inout}});
    }
    void broadcast(Span memory, int root) override {
        std::vector<Buffer> buffers;
        const Span there = take(memory, buffers);
        finish([&] { return inner_->broadcast(there, root, stream_); }, {{there, memory}});
    }
    void all_to_all(const AllToAllItem& item) override {
        std::vector<Buffer> buffers;
        AllToAllItem there = item;
        there.send = take({const_cast<std::byte*>(item.send.data), item.send.bytes}, buffers);
        there.recv = take(item.recv, buffers);
        finish([&] { return inner_->all_to_all(there, stream_); }, {{there.recv, item.recv}});
    }
    void p2p(const std::vector<P2POp>& ops) override {
        std::vector<Buffer> buffers;
        std::vector<P2POp> there;
        std::vector<std::pair<Span, Span>> back;
        for (const auto& op : ops) {
            there.push_back({op.kind, op.peer, take(op.memory, buffers)});
            if (op.kind == P2POp::Kind::recv) back.emplace_back(there.back().memory, op.memory);
        }
        finish([&] { return inner_->p2p(there, stream_); }, back);
    }
    void barrier() override {
        finish([&] { return inner_->barrier(stream_); }, {});
    }

    std::shared_ptr<Collectives> split(const std::vector<int>& ranks, const std::string& name) override {
        return std::make_shared<OnGpu>(inner_->split(ranks, name), device_, memory_);
    }
    MemoryPool& memory() override { return *memory_; }
    std::size_t trim_memory(Device) override { return inner_->trim_memory(device_); }
    void set_timeout(std::chrono::milliseconds timeout) override { inner_->set_timeout(timeout); }
    std::chrono::milliseconds timeout() const override { return inner_->timeout(); }
    void abort(const std::string& reason) noexcept override { inner_->abort(reason); }
    std::optional<AbortNote> aborted() const override { return inner_->aborted(); }

  private:
    // A copy on the GPU.
    Span take(Span host, std::vector<Buffer>& buffers) {
        if (host.bytes == 0) return {};
        MemoryPool& pool = memory_->holds(host) ? inner_->memory(device_) : device_pool(device_);
        buffers.emplace_back(host.bytes, "contract", pool);
        copy(stream_, host, buffers.back().span());
        return buffers.back().span();
    }
    // The same place in `whole`'s copy when `part` lies in it, else a copy of its own.
    Span inside(ConstSpan part, Span whole, Span whole_there, std::vector<Buffer>& buffers) {
        const bool within = part.bytes > 0 && part.data >= whole.data && part.data < whole.data + whole.bytes;
        if (within) return whole_there.subspan(static_cast<std::size_t>(part.data - whole.data), part.bytes);
        return take({const_cast<std::byte*>(part.data), part.bytes}, buffers);
    }
    template <typename Call>
    void finish(const Call& call, const std::vector<std::pair<Span, Span>>& back) {
        try {
            call().wait(Deadline::after(std::chrono::seconds(60)));
        } catch (...) {
            stream_.synchronize();  // the buffers go now
            throw;
        }
        for (const auto& [from, to] : back) copy(stream_, from, to);
        stream_.synchronize();
    }

    std::shared_ptr<Communicator> inner_;
    Device device_;
    std::shared_ptr<StandIn> memory_;
    Stream stream_;
};

}  // namespace

std::shared_ptr<Communicator> on_gpu(std::shared_ptr<Communicator> inner, Device device) {
    return std::make_shared<QueuedCommunicator>(
        std::make_shared<OnGpu>(std::move(inner), device, std::make_shared<StandIn>()));
}

}  // namespace tandem::comm::contract
