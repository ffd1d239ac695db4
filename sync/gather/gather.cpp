// Gather: bucketed all-gathers, Shard(0) → Replicate (or any source layout → any engine layout), through a
// staging arena in shared memory. Each rank writes its own pieces straight to their place in the slot that
// every rank and the engines see, cast and checksummed on the way; the engines copy bucket n while the ranks
// fill bucket n + 1. Where the ranks share cores with the engine, by a relay (relayed_buckets.h); else:
//
//   all ranks   fill 0 · exchange 0 · fill 1 · exchange 1 · fill 2 · exchange 2 · …
//   rank 0                     load 0            load 1            load 2
// Rank 0 enters exchange n only when the engines are done with bucket n + 1 - depth, so that the end of
// exchange n also says that the slot of bucket n + 1 is free: one rendezvous for each bucket. The first
// depth - 1 buckets are filled before the engines are paused.
//
// With one slot (depth 1) both sides take turns, which is faster where they share their cores: a second
// rendezvous says that the slot is free again, and the first bucket is filled before the pause all the same.
//
//   all ranks   fill 0 · exchange 0 ·        · free · fill 1 · exchange 1 ·        · free · …
//   rank 0                            load 0                               load 1
#include <algorithm>
#include <chrono>

#include "common/cores.h"
#include "common/error.h"
#include "common/stopwatch.h"
#include "common/trace.h"
#include "sync/gather/relayed_buckets.h"
#include "sync/strategy/bucket_sizes.h"
#include "sync/strategy/collectives.h"
#include "sync/strategy/exchange.h"
#include "sync/strategy/ledger.h"
#include "sync/strategy/rank_cores.h"
#include "sync/strategy/shard_reader.h"
#include "sync/strategy/staging.h"
#include "sync/strategy/strategy.h"

namespace tandem::sync {
namespace {

using Clock = std::chrono::steady_clock;

class Gather final : public SyncStrategy {
  public:
    explicit Gather(const SyncContext& context)
        : context_(context),
          buckets_(make_staged(context.plan, {context.options.bucket_bytes,
                                              staged_piece_bytes(context.options.bucket_bytes)})),
          slots_(std::min(std::max<std::size_t>(buckets_.buckets(), 1),
                          static_cast<std::size_t>(context.options.depth))),
          staging_(Staging::share(context.world, context.device, static_cast<int>(slots_),
                                  slot_bytes(buckets_.bucket_bytes, context.options.bucket_bytes),
                                  "staging")),
          reader_(context, buckets_),
          exchange_(context.world, buckets_.max_pieces),
          ledger_(context.plan, buckets_),
          depth_(static_cast<std::size_t>(context.options.depth)),
          ahead_(std::max<std::size_t>(depth_ - 1, 1)),
          cores_(context.device.type == DeviceType::cpu ? cores_of_ranks(context.world)
                                                        : std::vector<int>{}) {
        PushStatus status;
        engine::Region region = staging_.region();
        region.written = reader_.share_event(context_.world);
        each_engine(context_.engines, status, "attach", -1, [&](engine::Engine& engine, std::size_t e) {
            const auto place = [this](std::size_t index, const Piece& piece, engine::Transfer& transfer) {
                const std::byte* slot_begin = slot(bucket_of(index)).data;
                transfer.from =
                    static_cast<std::size_t>(slot_begin - staging_.memory().data) + piece.bucket_offset;
            };
            engine::TransferPlan plan = ledger_.transfers_to(e, place);
            plan.cores.assign(cores_.begin(), cores_.end());
            engine.attach({region}, plan, Deadline::after(context_.options.deadlines.begin));
        });
        throw_on_any_failure(context_.world, status, "sync set-up");
        if (!cores_.empty() && staging_.remote().empty())
            relay_ = RelayedBuckets::make(context_, buckets_, ledger_, slots_);
    }

    void prepare(PushStatus& status, Deadline deadline) override {
        prepared_ = std::min(ahead_, buckets_.buckets());
        past_cache_ = context_.options.past_cache.value_or(!fits_cache());
        try {
            reader_.locate();
        } catch (const std::exception& error) {
            status.fail("prepare", fmt::format("rank {}", context_.world.rank()), -1, error.what());
        }
        const OnCore stay(core());
        if (relay_) return relay_->prepare(status, fill_by(status, deadline));
        for (std::size_t b = 0; b < prepared_; ++b)
            exchange(b, fill(b, exchange_.mine(), status, deadline), status);
    }

    void send_ahead(std::size_t e) override {
        for (std::size_t b = 0; b < prepared_; ++b) {
            context_.engines[e]->buckets().send_ahead(static_cast<int>(b),
                                                      Deadline::after(context_.options.deadlines.load));
        }
    }

    void transfer(PushStatus& status, PhaseTimes& times, Deadline deadline,
                  const std::function<void()>& all_sent) override {
        if (relay_) {
            const OnCore stay(core());
            return relay_->transfer(status, times, deadline, fill_by(status, deadline), all_sent);
        }
        const auto wait = [&](std::size_t b) {
            times.copy +=
                wait_loaded(context_.engines, status, b, deadline.within(context_.options.deadlines.load));
        };
        const auto start = Clock::now();
        const OnCore stay(core());
        for (std::size_t b = 0; b < prepared_; ++b) load(b, status, deadline);
        // All ranks must stop at the same bucket, so they stop when the exchange says so: a load that failed
        // on rank 0 is known to it alone until the next one.
        for (std::size_t b = prepared_; b < buckets_.buckets(); ++b) {
            if (one_slot()) {
                wait(b - 1);
                exchange_.run(status);
                if (status.failed) break;
            }
            const auto filling = Clock::now();
            const std::size_t filled = fill(b, exchange_.mine(), status, deadline);
            times.gather += ms_since(filling);
            if (!one_slot()) wait(b + 1 - depth_);
            fail_when_late(context_.engines, status, deadline, ms_since(start), times.gather);
            const auto meeting = Clock::now();
            exchange(b, filled, status);
            times.gather += ms_since(meeting);
            if (status.failed) break;
            load(b, status, deadline);
        }
        if (!status.failed && !context_.engines.empty()) all_sent();
        const std::size_t last = buckets_.buckets();
        for (std::size_t b = last - std::min(last, ahead_); b < last; ++b) wait(b);
        times.load += std::max(0.0, ms_since(start) - times.gather);
    }

    const Ledger& ledger() const override { return ledger_; }

    void describe(SyncReport& report) const override {
        report.bytes = report.bytes_moved = buckets_.bytes;
        report.buckets = static_cast<int>(buckets_.buckets());
        report.bucket_bytes = slot(0).bytes;
        report.depth = static_cast<int>(depth_);
        report.relayed = relay_ != nullptr;
        report.staging_bytes = staging_.memory().bytes;
    }

  private:
    // That this rank fills staging on; negative: any.
    int core() const {
        const bool anywhere = cores_.empty() || (past_cache_ && !relay_);
        return anywhere ? -1 : cores_[static_cast<std::size_t>(context_.world.rank())];
    }
    bool one_slot() const { return depth_ == 1; }
    bool fits_cache() const { return staging_.memory().bytes <= last_level_cache_bytes() / 2; }
    std::size_t bucket_of(std::size_t piece) const {
        const auto after = std::upper_bound(buckets_.first.begin(), buckets_.first.end(), piece);
        return static_cast<std::size_t>(after - buckets_.first.begin() - 1) / buckets_.ranks;
    }
    Span slot(std::size_t bucket) const {
        const std::size_t bytes = staging_.memory().bytes / slots_;
        return staging_.memory().subspan(bucket % slots_ * bytes, bytes);
    }

    // The end of bucket b on every rank, `filled` of whose pieces are this one's.
    void exchange(std::size_t b, std::size_t filled, PushStatus& status) {
        if (!staging_.remote().empty()) fetch_from_other_hosts(b);
        exchange_.run(status, filled);
        if (context_.engines.empty() || status.failed) return;
        for (int rank = 0; rank < context_.world.size(); ++rank)
            ledger_.note(buckets_.begin(b, static_cast<std::size_t>(rank)), exchange_.of(rank));
    }

    // Ranks on other hosts send their lanes of the bucket to rank 0, where the engines read. A rank takes
    // part also after a failure that only it knows of, since the others do.
    void fetch_from_other_hosts(std::size_t b) {
        std::vector<comm::P2POp> ops;
        for (const int rank : staging_.remote()) {
            const std::size_t begin = buckets_.begin(b, static_cast<std::size_t>(rank));
            const std::size_t end = buckets_.end(b, static_cast<std::size_t>(rank));
            if (begin == end || (context_.world.rank() != 0 && context_.world.rank() != rank)) continue;
            const Piece& last = buckets_.pieces[end - 1];
            const std::size_t from = buckets_.pieces[begin].bucket_offset;
            const Span lane = slot(b).subspan(from, last.bucket_offset + last.bytes - from);
            const bool here = context_.world.rank() == rank;
            ops.push_back({here ? comm::P2POp::Kind::send : comm::P2POp::Kind::recv, here ? 0 : rank, lane});
        }
        if (ops.empty()) return;
        const trace::Scope scope("fetch bucket " + std::to_string(b), "gather");
        Stream stream = Stream::make_inline();
        context_.world.p2p(ops, stream);
    }

    // Returns how many pieces of bucket b were written; after a failure none is.
    std::size_t fill(std::size_t b, ops::Checksum* checksums, PushStatus& status, Deadline deadline) {
        if (status.failed) return 0;
        const trace::Scope scope("gather bucket " + std::to_string(b), "gather");
        const std::size_t first = reader_.begin(b);
        try {
            orders_.clear();
            for (std::size_t i = first; i < reader_.end(b); ++i)
                orders_.push_back({i, slot(b).data + buckets_.pieces[i].bucket_offset, reader_.row_bytes(i)});
            reader_.run(orders_, past_cache_, checksums, deadline);
            return reader_.end(b) - first;
        } catch (const std::exception& error) {
            status.fail("gather", fmt::format("rank {}", context_.world.rank()), static_cast<int>(b),
                        error.what());
            return 0;
        }
    }

    RelayedBuckets::Fill fill_by(PushStatus& status, Deadline deadline) {
        return [this, &status, deadline](std::size_t b, ops::Checksum* checksums) {
            return fill(b, checksums, status, deadline);
        };
    }

    void load(std::size_t b, PushStatus& status, Deadline deadline) {
        const int bucket = static_cast<int>(b);
        if (!context_.engines.empty() && !status.failed && context_.options.before_load)
            context_.options.before_load(bucket, slot(b));
        each_engine(context_.engines, status, "load", bucket, [&](engine::Engine& engine, std::size_t e) {
            engine.buckets().load(bucket, ledger_.of(e, b), deadline.within(context_.options.deadlines.load));
        });
    }

    SyncContext context_;
    BucketPlan buckets_;
    std::size_t slots_;  // of staging: depth, and no more than buckets
    Staging staging_;
    ShardReader reader_;
    Exchange<ops::Checksum> exchange_;
    Ledger ledger_;
    std::size_t depth_;        // as asked for
    std::size_t ahead_;        // buckets that are filled before the engines take one
    std::vector<int> cores_;   // [rank], or none
    bool past_cache_ = false;  // of this push
    std::size_t prepared_ = 0;
    std::unique_ptr<RelayedBuckets> relay_;   // null: a message for each bucket
    std::vector<ShardReader::Order> orders_;  // scratch
};

}  // namespace

std::unique_ptr<SyncStrategy> make_gather(const SyncContext& context) {
    return std::make_unique<Gather>(context);
}

}  // namespace tandem::sync
