#include "engine_adapter/receiver/relay_lanes.h"

#include <algorithm>
#include <exception>
#include <mutex>

#include "common/error.h"

namespace tandem::engine {
namespace {

// What one thread takes: the buckets of the ranks that write on its core.
class Lane {
  public:
    using Take = std::function<void(std::size_t, std::size_t)>;
    Lane(const RelayOrder& order, std::uint64_t buckets) : order_(order), buckets_(buckets) {}

    void add(std::size_t rank) { ranks_.push_back({rank, 0}); }

    // Ends early when somebody stops the words.
    void run(const Take& take) {
        RelayLooks looks;
        while (!done() && !order_.words.stopped(order_.from)) {
            bool any = false;
            for (Rank& one : ranks_) any = take_next(one, take) || any;
            any ? looks.found() : looks.again();
        }
    }

  private:
    struct Rank {
        std::size_t rank = 0;
        std::uint64_t taken = 0;  // buckets
    };
    bool done() const {
        return std::all_of(ranks_.begin(), ranks_.end(),
                           [&](const Rank& one) { return one.taken == buckets_; });
    }
    bool take_next(Rank& one, const Take& take) const {
        if (one.taken == buckets_ || order_.words.written(one.rank) <= order_.from + one.taken) return false;
        take(static_cast<std::size_t>(one.taken), one.rank);
        order_.words.take(order_.engine, one.rank, order_.from + ++one.taken);
        return true;
    }

    const RelayOrder& order_;
    const std::uint64_t buckets_;
    std::vector<Rank> ranks_;
};

}  // namespace

std::vector<int> distinct_cores(std::span<const std::int64_t> cores) {
    std::vector<int> distinct;
    for (const std::int64_t core : cores) distinct.push_back(static_cast<int>(core));
    std::sort(distinct.begin(), distinct.end());
    distinct.erase(std::unique(distinct.begin(), distinct.end()), distinct.end());
    return distinct;
}

void take_relayed(const RelayOrder& order, std::span<const std::int64_t> cores, std::uint64_t buckets,
                  WeightWriter& writer, const std::function<void(std::size_t, std::size_t)>& take) {
    std::mutex mutex;
    std::exception_ptr failure;  // the first: whoever has one stops the others
    const auto or_stop = [&](const auto& work) {
        try {
            work();
        } catch (...) {
            order.words.stop(order.from, order.engine);
            const std::lock_guard lock(mutex);
            if (!failure) failure = std::current_exception();
        }
    };
    const std::vector<int> distinct = distinct_cores(cores);
    const auto job = [&](std::size_t i) {
        or_stop([&] {
            Lane lane(order, buckets);
            for (std::size_t rank = 0; rank < cores.size(); ++rank) {
                if (cores[rank] == distinct[i]) lane.add(rank);
            }
            lane.run(take);
        });
    };
    writer.relay(distinct, job, [&] {
        if (!order.words.stopped(order.from)) or_stop(order.check);
    });
    if (failure) std::rethrow_exception(failure);
    if (order.words.stopped(order.from))
        throw ProtocolError("the trainer, or another engine, gave up the buckets that were handed over");
}

}  // namespace tandem::engine
