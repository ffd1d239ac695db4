// A rank without its peers.
#include <algorithm>
#include <numeric>

#include "common/comm/arguments.h"
#include "common/comm/launch.h"
#include "common/device/counting.h"
#include "common/error.h"

namespace tandem::comm {
namespace {

constexpr std::uintptr_t kNowhere = 4096;

class Silent final : public Communicator {
  public:
    Silent(int rank, std::vector<int> ranks, std::string name)
        : rank_(rank), ranks_(std::move(ranks)), name_(std::move(name)) {}

    int rank() const override { return rank_; }
    int size() const override { return static_cast<int>(ranks_.size()); }
    const std::vector<int>& global_ranks() const override { return ranks_; }
    const std::string& name() const override { return name_; }

    Work all_gather(std::span<const GatherItem> items, Stream& stream) override {
        check_all_gather(*this, items);
        return Work(stream.record());
    }
    Work reduce_scatter(std::span<const ReduceScatterItem> items, ReduceOp, Stream& stream) override {
        check_reduce_scatter(*this, items);
        return Work(stream.record());
    }
    Work all_reduce(Span inout, DType dtype, ReduceOp op, Stream& stream) override {
        check_all_reduce(*this, inout, dtype, op);
        return Work(stream.record());
    }
    Work broadcast(Span, int root, Stream& stream) override {
        check_broadcast(*this, root);
        return Work(stream.record());
    }
    Work all_to_all(const AllToAllItem& item, Stream& stream) override {
        check_all_to_all(*this, item);
        return Work(stream.record());
    }
    Work p2p(std::span<const P2POp> ops, Stream& stream) override {
        check_p2p(*this, ops);
        return Work(stream.record());
    }
    Work barrier(Stream& stream) override { return Work(stream.record()); }

    std::shared_ptr<Communicator> split(const std::vector<int>& ranks, const std::string& name) override {
        const int self = ranks_[static_cast<std::size_t>(rank_)];
        check_split(*this, self, ranks, name);
        const auto here = std::find(ranks.begin(), ranks.end(), self) - ranks.begin();
        return std::make_shared<Silent>(static_cast<int>(here), ranks, name);
    }

    MemoryPool& memory() override { return cpu_pool(); }
    MemoryPool& memory(Device device) override { return device_pool(device); }
    // As ranks of one host do. Nobody reads or writes where peers' memory would be.
    bool shares_memory() const override { return size() > 1; }
    std::vector<Span> show(Span own, std::span<const std::size_t> bytes) override {
        std::vector<Span> shown;
        for (const std::size_t each : bytes) shown.push_back({reinterpret_cast<std::byte*>(kNowhere), each});
        shown[static_cast<std::size_t>(rank_)] = own;
        return shown;
    }
    void set_timeout(std::chrono::milliseconds timeout) override {
        check_timeout(timeout);
        timeout_ = timeout;
    }
    std::chrono::milliseconds timeout() const override { return timeout_; }
    void abort(const std::string&) noexcept override {}

  private:
    int rank_;
    std::vector<int> ranks_;
    std::string name_;
    std::chrono::milliseconds timeout_{60'000};
};

}  // namespace

std::shared_ptr<Communicator> silent(int rank, int size) {
    require(only_counts(), "a rank without peers on a thread that computes");
    require(rank >= 0 && rank < size, "rank {} of {}", rank, size);
    std::vector<int> ranks(static_cast<std::size_t>(size));
    std::iota(ranks.begin(), ranks.end(), 0);
    return std::make_shared<Silent>(rank, std::move(ranks), "world");
}

}  // namespace tandem::comm
