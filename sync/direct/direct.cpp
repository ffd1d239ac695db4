// Direct: the engines read the trainer ranks' shards themselves, each exactly what it keeps, each byte once,
// in one copy from where the trainer holds it to where the engine does. The ranks only say where their shards
// lie and, before the pause, what their pieces' checksums are. What an engine wants quantised is quantised
// before the pause too, into memory beside the shard, and read from there.
#include <algorithm>
#include <chrono>

#include "common/align.h"
#include "common/error.h"
#include "common/stopwatch.h"
#include "common/trace.h"
#include "sync/direct/shard_regions.h"
#include "sync/strategy/bucket_sizes.h"
#include "sync/strategy/collectives.h"
#include "sync/strategy/exchange.h"
#include "sync/strategy/ledger.h"
#include "sync/strategy/shard_reader.h"
#include "sync/strategy/strategy.h"

namespace tandem::sync {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::size_t kInFlight = 4;  // buckets: enough that an engine never waits for the next

class Direct final : public SyncStrategy {
  public:
    explicit Direct(const SyncContext& context)
        : context_(context),
          buckets_(make_grouped(context.plan, {context.options.bucket_bytes,
                                               direct_piece_bytes(context.options.bucket_bytes)})),
          reader_(context, buckets_),
          exchange_(context.world, pieces_of_busiest_rank()),
          ledger_(context.plan, buckets_),
          tensors_(context.plan.source().tensors.size()),
          regions_(context.world, context.device) {
        make_quantised_memory();
        PushStatus status;
        regions_.set_events(reader_.share_event(context_.world));
        regions_.note(offer(), status);
        throw_on_any_failure(context_.world, status, "sync set-up");
        attach(status);
        throw_on_any_failure(context_.world, status, "sync set-up");
    }

    void prepare(PushStatus& status, Deadline deadline) override {
        const trace::Scope scope("hash shards", "prepare");
        std::size_t count = 0;
        bool moved = false;
        try {
            reader_.locate();
            moved = regions_.changed(offer());
            orders_.clear();
            for (std::size_t b = 0; b < buckets_.buckets(); ++b) {
                for (std::size_t i = reader_.begin(b); i < reader_.end(b); ++i) orders_.push_back(order(i));
            }
            reader_.run(orders_, false, exchange_.mine(), deadline);
            count = orders_.size();
        } catch (const std::exception& error) {
            status.fail("prepare", fmt::format("rank {}", context_.world.rank()), -1, error.what());
            count = 0;
        }
        exchange_.run(status, count, moved);
        if (status.failed) return;
        if (exchange_.more()) {  // some rank's shards lie elsewhere than last time
            regions_.note(offer(), status);
            attach(status);
        }
        if (context_.engines.empty()) return;
        std::vector<std::size_t> at(static_cast<std::size_t>(context_.world.size()), 0);
        for (std::size_t b = 0; b < buckets_.buckets(); ++b) {
            for (std::size_t rank = 0; rank < at.size(); ++rank) {
                const std::size_t pieces = buckets_.end(b, rank) - buckets_.begin(b, rank);
                ledger_.note(buckets_.begin(b, rank),
                             exchange_.of(static_cast<int>(rank)).subspan(at[rank], pieces));
                at[rank] += pieces;
            }
        }
    }

    void send_ahead(std::size_t e) override {
        for (std::size_t b = 0; b < std::min(kInFlight, buckets_.buckets()); ++b) {
            context_.engines[e]->buckets().send_ahead(static_cast<int>(b),
                                                      Deadline::after(context_.options.deadlines.load));
        }
    }

    void transfer(PushStatus& status, PhaseTimes& times, Deadline deadline,
                  const std::function<void()>& all_sent) override {
        const auto start = Clock::now();
        const auto soon = [&] { return deadline.within(context_.options.deadlines.load); };
        for (std::size_t b = 0; b < buckets_.buckets() + kInFlight; ++b) {
            if (b >= kInFlight) {
                times.copy += wait_loaded(context_.engines, status, b - kInFlight, soon());
            }
            if (b >= buckets_.buckets()) continue;
            const int bucket = static_cast<int>(b);
            if (!context_.engines.empty() && !status.failed && context_.options.before_load)
                context_.options.before_load(bucket, {});
            each_engine(context_.engines, status, "load", bucket, [&](engine::Engine& engine, std::size_t e) {
                engine.buckets().load(bucket, ledger_.of(e, b), soon());
            });
            if (b + 1 == buckets_.buckets() && !status.failed) all_sent();
        }
        times.load += ms_since(start);
    }

    const Ledger& ledger() const override { return ledger_; }

    void describe(SyncReport& report) const override {
        report.bytes = report.bytes_moved = buckets_.bytes;
        report.buckets = static_cast<int>(buckets_.buckets());
        report.bucket_bytes = std::min(buckets_.bytes, context_.options.bucket_bytes);
        report.depth = static_cast<int>(kInFlight);
        report.staging_bytes = 0;
    }

  private:
    std::size_t pieces_of_busiest_rank() const {
        std::vector<std::size_t> count(buckets_.ranks, 0);
        for (const Piece& piece : buckets_.pieces) ++count[static_cast<std::size_t>(piece.move.source_rank)];
        return *std::max_element(count.begin(), count.end());
    }

    // Memory for this rank's quantised shards, in the shards' layout.
    void make_quantised_memory() {
        std::size_t bytes = 0;
        quantized_at_.assign(tensors_, 0);
        for (std::size_t t = 0; t < tensors_; ++t) {
            if (context_.local[t] < 0 || !context_.quantizer.quantizes(static_cast<int>(t))) continue;
            quantized_at_[t] = bytes;
            const auto elements = static_cast<std::size_t>(reader_.tensor(static_cast<int>(t)).numel());
            bytes += round_up(elements, 64);
        }
        if (bytes > 0) quantized_ = Buffer(bytes, "quantised shards", context_.world.memory());
    }

    // The order that makes piece i ready for the engines: its checksum, and its bytes if they are quantised.
    ShardReader::Order order(std::size_t i) const {
        const Move& move = buckets_.pieces[i].move;
        if (!context_.quantizer.quantizes(move.source_tensor)) return {i, nullptr, 0};
        return {i,
                quantized_.data() + quantized_at_[static_cast<std::size_t>(move.source_tensor)] +
                    static_cast<std::size_t>(move.source_offset),
                static_cast<std::size_t>(move.source_stride)};
    }

    // The memory that engines read of a tensor: the shard, or the quantised one.
    ConstSpan offered(std::size_t t) const {
        const Tensor& local = reader_.tensor(static_cast<int>(t));
        if (!context_.quantizer.quantizes(static_cast<int>(t))) return local.span();
        return quantized_.span().subspan(quantized_at_[t], static_cast<std::size_t>(local.numel()));
    }

    ShardRegions::Offer offer() const {
        ShardRegions::Offer offer;
        for (std::size_t t = 0; t < tensors_; ++t) {
            const bool here =
                context_.local[t] >= 0 || context_.quantizer.scales(static_cast<int>(t)) != nullptr;
            offer.shards.push_back(here ? offered(t) : ConstSpan{});
            offer.names.push_back(context_.plan.source().tensors[t].name);
        }
        return offer;
    }

    void attach(PushStatus& status) {
        each_engine(context_.engines, status, "attach", -1, [&](engine::Engine& engine, std::size_t e) {
            const auto place = [this](std::size_t, const Piece& piece, engine::Transfer& transfer) {
                const Move& move = piece.move;
                const DType dtype = source_dtype(context_.plan, move);
                const ShardRegions::At at =
                    regions_.of(move.source_rank, static_cast<std::size_t>(move.source_tensor));
                transfer.region = at.region;
                transfer.from_dtype = dtype;
                transfer.from =
                    at.offset + static_cast<std::uint64_t>(move.source_offset) * dtype_size(dtype);
                transfer.from_stride = static_cast<std::uint64_t>(move.source_stride) * dtype_size(dtype);
            };
            engine.attach(regions_.regions(), ledger_.transfers_to(e, place),
                          Deadline::after(context_.options.deadlines.begin));
        });
    }

    SyncContext context_;
    BucketPlan buckets_;
    ShardReader reader_;
    Exchange<ops::Checksum> exchange_;
    Ledger ledger_;
    std::size_t tensors_;
    Buffer quantized_;
    std::vector<std::size_t> quantized_at_;  // [source tensor]
    ShardRegions regions_;
    std::vector<ShardReader::Order> orders_;  // scratch
};

}  // namespace

std::unique_ptr<SyncStrategy> make_direct(const SyncContext& context) {
    return std::make_unique<Direct>(context);
}

}  // namespace tandem::sync
