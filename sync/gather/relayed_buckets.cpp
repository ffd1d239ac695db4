#include "sync/gather/relayed_buckets.h"

#include <algorithm>
#include <chrono>
#include <span>

#include "common/stopwatch.h"
#include "sync/strategy/collectives.h"

namespace tandem::sync {
namespace {

using Clock = std::chrono::steady_clock;

// Of any rank, in all buckets.
std::size_t most_pieces(const BucketPlan& buckets) {
    std::size_t most = 0;
    for (std::size_t rank = 0; rank < buckets.ranks; ++rank) {
        std::size_t pieces = 0;
        for (std::size_t b = 0; b < buckets.buckets(); ++b)
            pieces += buckets.end(b, rank) - buckets.begin(b, rank);
        most = std::max(most, pieces);
    }
    return most;
}

// Whoever leaves before the end takes the others along.
class OrStop {
  public:
    explicit OrStop(Relay& relay) : relay_(&relay) {}
    ~OrStop() {
        if (relay_ != nullptr) relay_->stop();
    }
    OrStop(const OrStop&) = delete;
    OrStop& operator=(const OrStop&) = delete;
    void done() { relay_ = nullptr; }

  private:
    Relay* relay_;
};

}  // namespace

std::unique_ptr<RelayedBuckets> RelayedBuckets::make(const SyncContext& context, const BucketPlan& buckets,
                                                     Ledger& ledger, std::size_t slots) {
    const bool seen = !broadcast_text(context.world, context.options.before_load ? "seen" : "").empty();
    if (seen || !Relay::taken_by(context.world, context.engines)) return nullptr;
    return std::unique_ptr<RelayedBuckets>(new RelayedBuckets(context, buckets, ledger, slots));
}

RelayedBuckets::RelayedBuckets(const SyncContext& context, const BucketPlan& buckets, Ledger& ledger,
                               std::size_t slots)
    : context_(context),
      buckets_(buckets),
      ledger_(ledger),
      slots_(slots),
      relay_(context.world, context.engines, context.plan.engine().size()),
      exchange_(context.world, most_pieces(buckets)) {}

void RelayedBuckets::prepare(PushStatus& status, const Fill& fill) {
    pieces_ = 0;
    relay_.begin(buckets_.buckets(), slots_);
    const std::size_t ahead = std::min(slots_, buckets_.buckets());
    while (relay_.written() < ahead && !status.failed) fill_next(status, fill);
}

void RelayedBuckets::transfer(PushStatus& status, PhaseTimes& times, Deadline deadline, const Fill& fill,
                              const std::function<void()>& all_sent) {
    const auto start = Clock::now();
    const auto& limits = context_.options.deadlines;
    OrStop or_stop(relay_);
    relay_.start(status, deadline);
    while (relay_.written() < buckets_.buckets() && !status.failed) {
        // Rank 0 knows when the engines begin; the others wait for it as long as in a call.
        const auto at_most = context_.engines.empty() ? context_.world.timeout() : limits.load;
        if (!relay_.wait_for_slot(status, deadline.within(at_most))) break;
        const auto filling = Clock::now();
        fill_next(status, fill);
        times.gather += ms_since(filling);
        fail_when_late(context_.engines, status, deadline, ms_since(start), times.gather);
    }
    if (!status.failed) relay_.wait_for_ranks(status, deadline, limits.load);
    if (status.failed) relay_.stop();
    // A rank that was stopped knows no more than that: here it hears whether somebody has failed.
    exchange_.run(status, pieces_);
    if (!status.failed) times.copy += relay_.wait_taken(status, deadline.within(limits.load));
    if (!status.failed && !context_.engines.empty()) {
        note_all();
        each_engine(context_.engines, status, "load", -1, [&](engine::Engine& engine, std::size_t e) {
            engine.verify(ledger_.of(e), deadline.within(limits.load));
        });
    }
    if (!status.failed) or_stop.done();
    if (!status.failed && !context_.engines.empty()) all_sent();
    times.load += std::max(0.0, ms_since(start) - times.gather);
}

void RelayedBuckets::fill_next(PushStatus& status, const Fill& fill) {
    pieces_ += fill(relay_.written(), exchange_.mine() + pieces_);
    if (!status.failed) relay_.wrote();
}

void RelayedBuckets::note_all() {
    for (std::size_t rank = 0; rank < buckets_.ranks; ++rank) {
        std::span<const ops::Checksum> left = exchange_.of(static_cast<int>(rank));
        for (std::size_t b = 0; b < buckets_.buckets(); ++b) {
            const std::size_t begin = buckets_.begin(b, rank);
            const std::size_t count = buckets_.end(b, rank) - begin;
            ledger_.note(begin, left.first(count));
            left = left.subspan(count);
        }
    }
}

}  // namespace tandem::sync
