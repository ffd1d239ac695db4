// Delta: only what changed since the version that the engines hold. Each rank keeps what it pushed last, in
// the engines' dtype, compares its shards with that, and writes the changes, encoded without loss, into its
// lane of the staging slots; an engine applies them to its weights and then verifies every byte that it holds
// against the checksums of the whole new version. A piece that encodes no smaller travels as it is. Engines
// that do not hold that very version (by number and manifest) get all pieces so, without being asked.
#include <algorithm>
#include <chrono>
#include <cstring>

#include "common/align.h"
#include "common/error.h"
#include "common/ops/delta.h"
#include "common/stopwatch.h"
#include "common/trace.h"
#include "sync/strategy/bucket_sizes.h"
#include "sync/strategy/collectives.h"
#include "sync/strategy/exchange.h"
#include "sync/strategy/ledger.h"
#include "sync/strategy/shard_reader.h"
#include "sync/strategy/staging.h"
#include "sync/strategy/strategy.h"

namespace tandem::sync {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kAlign = 64;
constexpr std::size_t kMaxRecords = 4096;  // pieces of one rank in one bucket

// How one piece travels, as its rank reports it to rank 0.
struct Record {
    std::uint64_t piece = 0;   // index in BucketPlan::pieces
    std::uint64_t offset = 0;  // in the arena
    std::uint64_t bytes = 0;   // encoded
    std::uint64_t codec = 0;
    ops::Checksum encoded;
    ops::Checksum content;
};

class Delta final : public SyncStrategy {
  public:
    explicit Delta(const SyncContext& context)
        : context_(context),
          lane_bytes_(lane_bytes(context)),
          buckets_(make_grouped(context.plan,
                                {context.plan.bytes() + 1, std::min(kLargestDeltaPieceBytes, lane_bytes_)})),
          staging_(Staging::share(context.world, {}, context.options.depth, lane_bytes_ * ranks())),
          reader_(context, buckets_),
          exchange_(context.world, std::clamp<std::size_t>(buckets_.max_pieces, 1, kMaxRecords)),
          ledger_(context.plan, buckets_),
          slots_(static_cast<std::size_t>(context.options.depth)) {
        std::size_t bytes = 0;
        for (std::size_t i = first(); i < last(); ++i) {
            base_offset_.push_back(bytes);
            bytes += round_up(buckets_.pieces[i].bytes, kAlign);
        }
        base_ = Buffer(std::max<std::size_t>(bytes, 1), "delta base");
        base_manifest_.resize(context_.engines.size());
        PushStatus status;
        each_engine(context_.engines, status, "attach", -1, [this](engine::Engine& engine, std::size_t e) {
            // Where a piece's encoding lies is said with every version (engine::DeltaEntry).
            engine.attach({staging_.region()}, ledger_.transfers_to(e),
                          Deadline::after(context_.options.deadlines.begin));
        });
        throw_on_any_failure(context_.world, status, "sync set-up");
    }

    void prepare(PushStatus& status, Deadline deadline) override {
        try {
            reader_.locate();
        } catch (const std::exception& error) {
            status.fail("prepare", fmt::format("rank {}", context_.world.rank()), -1, error.what());
        }
        bool lacks_base = base_version_ == 0;
        each_engine(context_.engines, status, "prepare", -1, [&](engine::Engine& engine, std::size_t e) {
            const engine::Held held = engine.held(deadline);
            lacks_base = lacks_base || held.version != base_version_ || held.manifest != base_manifest_[e];
        });
        exchange_.run(status, 0, lacks_base);
        dense_ = exchange_.more();
        next_ = first();
        bytes_moved_ = 0;
        more_ = true;
        filled_.clear();
        while (filled_.size() + 1 < slots_ && more_ && !status.failed)
            exchange(fill(status, deadline), status);
    }

    void transfer(PushStatus& status, PhaseTimes& times, Deadline deadline,
                  const std::function<void()>&) override {
        const auto wait = [&](std::size_t b) {
            times.copy +=
                wait_loaded(context_.engines, status, b, deadline.within(context_.options.deadlines.load));
        };
        const auto start = Clock::now();
        for (std::size_t b = 0; b < filled_.size(); ++b) load(b, status, deadline);
        // Only the next exchange tells the other ranks of a load that failed on rank 0: stop when that says
        // so.
        while (more_) {
            const auto filling = Clock::now();
            const std::size_t filled = fill(status, deadline);
            times.gather += ms_since(filling);
            if (filled_.size() + 1 >= slots_) wait(filled_.size() + 1 - slots_);
            fail_when_late(context_.engines, status, deadline, ms_since(start), times.gather);
            const auto meeting = Clock::now();
            exchange(filled, status);
            times.gather += ms_since(meeting);
            if (status.failed) break;
            load(filled_.size() - 1, status, deadline);
        }
        const std::size_t count = filled_.size();
        for (std::size_t b = count - std::min(count, slots_ - 1); b < count; ++b) wait(b);
        const trace::Scope scope("verify", "load");
        each_engine(context_.engines, status, "verify", -1, [&](engine::Engine& engine, std::size_t e) {
            times.copy += engine.verify(ledger_.of(e), deadline.within(context_.options.deadlines.commit));
        });
        times.load += std::max(0.0, ms_since(start) - times.gather);
    }

    const Ledger& ledger() const override { return ledger_; }

    // After a failure it is unknown what the engines hold: the next push is dense.
    void finish(std::int64_t version, bool committed) override {
        base_version_ = committed ? version : 0;
        for (std::size_t e = 0; e < base_manifest_.size() && committed; ++e)
            base_manifest_[e] = ledger_.manifest(version, e);
    }

    void describe(SyncReport& report) const override {
        report.bytes = buckets_.bytes;
        report.bytes_moved = bytes_moved_;
        report.buckets = static_cast<int>(filled_.size());
        report.bucket_bytes = staging_.memory().bytes / slots_;
        report.depth = static_cast<int>(slots_);
        report.staging_bytes = staging_.memory().bytes;
        report.dense = dense_;
    }

  private:
    using Entries = std::vector<std::vector<engine::DeltaEntry>>;  // [engine]

    // A lane of each slot for each rank: its share of the bucket, but no more than all of its bytes.
    static std::size_t lane_bytes(const SyncContext& context) {
        const std::size_t share =
            context.options.bucket_bytes / static_cast<std::size_t>(context.world.size()) / kAlign * kAlign;
        enforce(share >= kAlign, "a bucket of {} bytes is too small for {} ranks",
                context.options.bucket_bytes, context.world.size());
        const auto& bytes = context.plan.bytes_from();
        const std::size_t most = *std::max_element(bytes.begin(), bytes.end());
        return std::min(share, round_up(std::max<std::size_t>(most, 1), kAlign) + kAlign);
    }

    std::size_t ranks() const { return static_cast<std::size_t>(context_.world.size()); }
    std::size_t rank() const { return static_cast<std::size_t>(context_.world.rank()); }
    std::size_t first() const { return buckets_.pieces.empty() ? 0 : reader_.begin(0); }
    std::size_t last() const { return buckets_.pieces.empty() ? 0 : reader_.end(0); }
    Span slot(std::size_t bucket) const {
        return staging_.memory().subspan(bucket % slots_ * lane_bytes_ * ranks(), lane_bytes_ * ranks());
    }

    // The end of the next bucket on every rank, `filled` of whose pieces are this one's.
    void exchange(std::size_t filled, PushStatus& status) {
        exchange_.run(status, filled, next_ < last());
        more_ = exchange_.more();
        note();
    }

    // Encodes pieces of the next bucket; returns how many, none after a failure.
    std::size_t fill(PushStatus& status, Deadline deadline) {
        const std::size_t b = filled_.size();
        try {
            return encode(b, deadline);
        } catch (const std::exception& error) {
            status.fail("gather", fmt::format("rank {}", rank()), static_cast<int>(b), error.what());
            return 0;
        }
    }

    // Fills this rank's lane until it is full or no piece is left; returns how many pieces.
    std::size_t encode(std::size_t b, Deadline deadline) {
        const trace::Scope scope("encode bucket " + std::to_string(b), "gather");
        const Span lane = slot(b).subspan(rank() * lane_bytes_, lane_bytes_);
        std::size_t used = 0;
        std::size_t count = 0;
        for (; next_ < last() && count < exchange_.max_records(); ++next_, ++count) {
            const Piece& piece = buckets_.pieces[next_];
            const std::size_t space = lane.bytes - used;
            const std::size_t width = dtype_size(target_of(context_.plan, piece.move).dtype);
            if (ops::delta_capacity(piece.move.rows * piece.move.row_elements, width) > space) break;
            Record& record = exchange_.mine()[count];
            record = encode(next_, lane.subspan(used, space), deadline);
            record.offset = static_cast<std::uint64_t>(lane.data + used - staging_.memory().data);
            used = std::min(lane.bytes, round_up(used + record.bytes, kAlign));
        }
        return count;
    }

    Record encode(std::size_t index, Span to, Deadline deadline) {
        const Piece& piece = buckets_.pieces[index];
        const Span base = base_.span().subspan(base_offset_[index - first()], piece.bytes);
        if (dense_) {
            ops::Checksum content;
            const ShardReader::Order order{index, to.data, reader_.row_bytes(index)};
            reader_.run({&order, 1}, false, &content, deadline);
            std::memcpy(base.data, to.data, piece.bytes);
            return {index,   0,      piece.bytes, static_cast<std::uint64_t>(ops::DeltaCodec::dense),
                    content, content};
        }
        const auto [data, stride] = reader_.rows(index);
        ops::DeltaSource source;
        source.data = data;
        source.stride = stride;
        source.rows = piece.move.rows;
        source.row_elements = piece.move.row_elements;
        source.from_dtype = source_dtype(context_.plan, piece.move);
        source.to_dtype = target_of(context_.plan, piece.move).dtype;
        const bool half = source.from_dtype == DType::float16 || source.to_dtype == DType::float16;
        if (half && source.from_dtype != source.to_dtype) {  // which the comparison does not cast by itself
            if (cast_.bytes() < piece.bytes) cast_ = Buffer(piece.bytes, "delta cast");
            source.data = cast_.data();
            source.stride = reader_.row_bytes(index);
            source.from_dtype = source.to_dtype;
            ops::Checksum unused;
            const ShardReader::Order order{index, cast_.data(), source.stride};
            reader_.run({&order, 1}, false, &unused, deadline);
        }
        const ops::DeltaResult result = ops::delta_encode(source, base, to);
        return {index,         0, result.bytes, static_cast<std::uint64_t>(result.codec), result.encoded,
                result.content};
    }

    // Rank 0 notes the entries that each engine gets of the bucket; all ranks add up its bytes.
    void note() {
        Entries entries(context_.engines.size());
        for (int rank = 0; rank < context_.world.size(); ++rank) {
            for (const Record& record : exchange_.of(rank)) {
                bytes_moved_ += record.bytes;
                if (context_.engines.empty()) continue;
                const Piece& piece = buckets_.pieces[record.piece];
                ledger_.note(record.piece, {&record.content, 1});
                if (record.codec == static_cast<std::uint64_t>(ops::DeltaCodec::none)) continue;
                bytes_moved_ += sizeof(engine::DeltaEntry);
                entries[static_cast<std::size_t>(piece.move.engine_rank)].push_back(
                    {piece.transfer, static_cast<std::uint32_t>(record.codec), record.offset, record.bytes,
                     record.encoded});
            }
        }
        filled_.push_back(std::move(entries));
    }

    void load(std::size_t b, PushStatus& status, Deadline deadline) {
        const int bucket = static_cast<int>(b);
        if (!context_.engines.empty() && !status.failed && context_.options.before_load)
            context_.options.before_load(bucket, slot(b));
        each_engine(context_.engines, status, "load", bucket, [&](engine::Engine& engine, std::size_t e) {
            engine.buckets().load_delta(bucket, filled_[b][e],
                                        deadline.within(context_.options.deadlines.load));
        });
    }

    SyncContext context_;
    std::size_t lane_bytes_;
    BucketPlan buckets_;  // one bucket of all pieces; what shares a slot depends on the changes
    Staging staging_;
    ShardReader reader_;
    Exchange<Record> exchange_;
    Ledger ledger_;
    std::size_t slots_;
    Buffer base_;  // this rank's pieces as pushed last, packed, in the engines' dtype
    Buffer cast_;  // of a piece on its way from or to float16; made when it is first needed
    std::vector<std::size_t> base_offset_;      // [piece - first()]
    std::int64_t base_version_ = 0;             // 0: base_ is invalid
    std::vector<ops::Checksum> base_manifest_;  // rank 0: [engine]
    // The push under way:
    bool dense_ = false;
    bool more_ = false;
    std::size_t next_ = 0;  // this rank's next piece
    std::size_t bytes_moved_ = 0;
    std::vector<Entries> filled_;  // [bucket]
};

}  // namespace

std::unique_ptr<SyncStrategy> make_delta(const SyncContext& context) {
    return std::make_unique<Delta>(context);
}

}  // namespace tandem::sync
