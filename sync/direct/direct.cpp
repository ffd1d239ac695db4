// Direct: the engines read the trainer ranks' shards themselves, each exactly what it keeps, each byte once,
// in one copy from where the trainer holds it to where the engine does. The ranks only say where their shards
// lie and, before the pause, what their pieces' checksums are. What an engine wants quantised is quantised
// before the pause too, into memory beside the shard, and read from there.
#include <algorithm>
#include <chrono>

#include "common/error.h"
#include "common/trace.h"
#include "sync/push/agree.h"
#include "sync/push/exchange.h"
#include "sync/push/filler.h"
#include "sync/push/ledger.h"
#include "sync/push/way.h"

namespace tandem::sync {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::size_t kPieceBytes = 1024u << 10;
constexpr std::size_t kSmallest = 64;
constexpr std::size_t kInFlight = 4;  // buckets: enough that an engine never waits for the next
constexpr std::uint64_t kNowhere = ~std::uint64_t{0};

class Direct final : public Way {
  public:
    explicit Direct(const Wiring& wiring)
        : wiring_(wiring),
          buckets_(
              make_grouped(wiring.plan, {wiring.options.bucket_bytes,
                                         std::clamp(wiring.options.bucket_bytes, kSmallest, kPieceBytes)})),
          filler_(wiring, buckets_),
          exchange_(wiring.world, pieces_of_busiest_rank()),
          ledger_(wiring.plan, buckets_),
          tensors_(wiring.plan.source().tensors.size()) {
        make_room();
        Health health;
        note_places(health);
        agree(wiring_.world, health, "sync set-up");
        attach(health);
        agree(wiring_.world, health, "sync set-up");
    }

    void prepare(Health& health) override {
        const trace::Scope scope("hash shards", "prepare");
        std::size_t count = 0;
        bool moved = false;
        try {
            filler_.locate();
            moved = places_changed();
            for (std::size_t b = 0; b < buckets_.buckets(); ++b) {
                for (std::size_t i = filler_.begin(b); i < filler_.end(b); ++i)
                    exchange_.mine()[count++] = ready(i);
            }
        } catch (const std::exception& error) {
            health.fail("prepare", fmt::format("rank {}", wiring_.world.rank()), -1, error.what());
            count = 0;
        }
        exchange_.run(health, count, moved);
        if (health.failed) return;
        if (exchange_.more()) {  // some rank's shards lie elsewhere than last time
            note_places(health);
            attach(health);
        }
        if (wiring_.engines.empty()) return;
        std::vector<std::size_t> at(static_cast<std::size_t>(wiring_.world.size()), 0);
        for (std::size_t b = 0; b < buckets_.buckets(); ++b) {
            for (std::size_t rank = 0; rank < at.size(); ++rank) {
                const std::size_t pieces = buckets_.end(b, rank) - buckets_.begin(b, rank);
                ledger_.note(b, static_cast<int>(rank),
                             exchange_.of(static_cast<int>(rank)).subspan(at[rank], pieces));
                at[rank] += pieces;
            }
        }
    }

    void transfer(Health& health, PhaseTimes& times) override {
        const auto start = Clock::now();
        for (std::size_t b = 0; b < buckets_.buckets() + kInFlight; ++b) {
            if (b >= kInFlight) {
                times.copy +=
                    wait_loaded(wiring_.engines, health, b - kInFlight, wiring_.options.deadlines.load);
            }
            if (b >= buckets_.buckets()) continue;
            const int bucket = static_cast<int>(b);
            if (!wiring_.engines.empty() && !health.failed && wiring_.options.before_load)
                wiring_.options.before_load(bucket, {});
            each_engine(wiring_.engines, health, "load", bucket, [&](engine::Engine& engine, std::size_t e) {
                engine.load_async(bucket, ledger_.of(e, b), Deadline::after(wiring_.options.deadlines.load));
            });
        }
        times.load += std::chrono::duration<double, std::milli>(Clock::now() - start).count();
    }

    bool ranks_transfer() const override { return false; }

    ops::Checksum manifest(std::int64_t version, std::size_t engine) const override {
        return ledger_.manifest(version, engine);
    }

    void describe(SyncReport& report) const override {
        report.bytes = report.bytes_moved = buckets_.bytes;
        report.buckets = static_cast<int>(buckets_.buckets());
        report.bucket_bytes = std::min(buckets_.bytes, wiring_.options.bucket_bytes);
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
    void make_room() {
        std::size_t bytes = 0;
        quantized_at_.assign(tensors_, 0);
        for (std::size_t t = 0; t < tensors_; ++t) {
            if (wiring_.local[t] < 0 || !wiring_.quantizer.quantizes(static_cast<int>(t))) continue;
            quantized_at_[t] = bytes;
            const auto elements = static_cast<std::size_t>(filler_.tensor(static_cast<int>(t)).numel());
            bytes += (elements + 63) / 64 * 64;
        }
        if (bytes > 0) quantized_ = Buffer(bytes, "quantised shards", wiring_.world.memory());
    }

    // Piece i as the engines may read it; its checksum.
    ops::Checksum ready(std::size_t i) {
        const Move& move = buckets_.pieces[i].move;
        if (!wiring_.quantizer.quantizes(move.source_tensor)) return filler_.checksum(i);
        std::byte* to = quantized_.data() + quantized_at_[static_cast<std::size_t>(move.source_tensor)] +
                        static_cast<std::size_t>(move.source_offset);
        return filler_.copy(i, to, static_cast<std::size_t>(move.source_stride), false);
    }

    // What the engines read of a tensor: the shard, or the quantised one.
    ConstSpan offered(std::size_t t) const {
        const Tensor& local = filler_.tensor(static_cast<int>(t));
        if (!wiring_.quantizer.quantizes(static_cast<int>(t))) return local.span();
        return quantized_.span().subspan(quantized_at_[t], static_cast<std::size_t>(local.numel()));
    }

    // Where this rank's shard of each tensor begins in the memory that the ranks share.
    std::vector<std::uint64_t> my_places() const {
        std::vector<std::uint64_t> places(tensors_, 0);
        const Span shared = wiring_.world.shared_memory().memory;
        for (std::size_t t = 0; t < tensors_; ++t) {
            const int index = static_cast<int>(t);
            if (wiring_.local[t] < 0 && wiring_.quantizer.scales(index) == nullptr) continue;
            const ConstSpan local = offered(t);
            if (local.bytes == 0) continue;
            const bool inside = shared.bytes > 0 && local.data >= shared.data &&
                                local.data + local.bytes <= shared.data + shared.bytes;
            require(inside,
                    "tensor '{}' of rank {} does not lie in memory that an engine can map: allocate it from "
                    "the communicator's memory(), or use mode gather",
                    wiring_.plan.source().tensors[t].name, wiring_.world.rank());
            places[t] = static_cast<std::uint64_t>(local.data - shared.data);
        }
        return places;
    }

    bool places_changed() const {
        const auto first = places_.begin() + static_cast<std::ptrdiff_t>(rank() * tensors_);
        const std::vector<std::uint64_t> now = my_places();
        return !std::equal(now.begin(), now.end(), first);
    }

    // Collective: every rank learns where every shard lies.
    void note_places(Health& health) {
        std::vector<std::uint64_t> mine(tensors_, kNowhere);
        try {
            mine = my_places();
        } catch (const std::exception& error) {
            health.fail("plan", fmt::format("rank {}", wiring_.world.rank()), -1, error.what());
        }
        places_.resize(tensors_ * buckets_.ranks);
        if (tensors_ == 0) return;
        wiring_.world.all_gather(
            {reinterpret_cast<std::byte*>(mine.data()), mine.size() * sizeof(mine[0])},
            {reinterpret_cast<std::byte*>(places_.data()), places_.size() * sizeof(places_[0])});
    }

    void attach(Health& health) {
        const comm::SharedMemory shared = wiring_.world.shared_memory();
        each_engine(wiring_.engines, health, "attach", -1, [&](engine::Engine& engine, std::size_t e) {
            const auto place = [this](std::size_t, const Piece& piece) {
                const Move& move = piece.move;
                const DType dtype = source_dtype(wiring_.plan, move);
                const std::uint64_t base = places_[static_cast<std::size_t>(move.source_rank) * tensors_ +
                                                   static_cast<std::size_t>(move.source_tensor)];
                return Place{0, dtype,
                             base + static_cast<std::uint64_t>(move.source_offset) * dtype_size(dtype),
                             static_cast<std::uint64_t>(move.source_stride) * dtype_size(dtype)};
            };
            engine.attach({{shared.memory, shared.fd}},
                          transfer_plan(wiring_.plan, buckets_, static_cast<int>(e), place),
                          Deadline::after(wiring_.options.deadlines.begin));
        });
    }

    std::size_t rank() const { return static_cast<std::size_t>(wiring_.world.rank()); }

    Wiring wiring_;
    BucketPlan buckets_;
    Filler filler_;
    Exchange<ops::Checksum> exchange_;
    Ledger ledger_;
    std::size_t tensors_;
    Buffer quantized_;
    std::vector<std::size_t> quantized_at_;  // [source tensor]
    std::vector<std::uint64_t> places_;      // [rank × tensors_ + tensor]
};

}  // namespace

std::unique_ptr<Way> make_direct(const Wiring& wiring) {
    return std::make_unique<Direct>(wiring);
}

}  // namespace tandem::sync
