#include "sync/cost/calibrate.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "common/cores.h"
#include "common/json_text.h"
#include "common/ops/batched_copy.h"
#include "common/stopwatch.h"
#include "common/trace.h"
#include "sync/cost/probe_source.h"
#include "sync/cost/store.h"
#include "sync/strategy/bucket_sizes.h"
#include "sync/strategy/collectives.h"
#include "sync/strategy/exchange.h"
#include "sync/strategy/rank_cores.h"
#include "sync/strategy/relay.h"
#include "sync/strategy/staging.h"

namespace tandem::sync {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::size_t kMebibyte = std::size_t{1} << 20;
constexpr std::size_t kHashPiece = 64u << 10;
constexpr int kSlots = 3;
constexpr int kRoundsAtMost = 15;
constexpr const char* kTag = "calibration";

// The lower quartile, as if nothing else ran: other work only ever makes a machine slower.
double undisturbed(std::vector<double> values) {
    const auto quarter = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 4);
    std::nth_element(values.begin(), quarter, values.end());
    return *quarter;
}

// One size of bucket, measured again and again.
struct Point {
    std::size_t bytes = 0;
    bool past_cache = false;
    int buckets = 0;  // in one round
    std::vector<double> fill = {}, load = {}, both = {}, lockstep = {}, turns = {},
                        relay = {};  // ms of one bucket, a value a round
};

class Calibration {
  public:
    Calibration(comm::Communicator& world, const Engines& engines, const CalibrationOptions& options)
        : world_(world),
          engines_(engines),
          options_(options),
          cache_(options.cache_bytes),
          cores_(cores_of_ranks(world)),
          points_(make_points(cache_)),
          staging_(Staging::share(world, {}, kSlots, points_.back().bytes, kTag)),
          exchange_(world, points_.back().bytes / staged_piece_bytes(points_.back().bytes) + 16) {}

    Costs measure() {
        const trace::Scope scope("calibrate", "sync");
        const auto start = Clock::now();
        make_source();
        attach(0, ranks());
        throw_on_any_failure(world_, status_, "sync set-up");
        if (!cores_.empty() && Relay::taken_by(world_, engines_)) make_relay();
        if (!relay_ && engines_.size() > 1) attach_shares();
        run(true, true, points_.back());  // first touch
        const auto measuring = Clock::now();
        for (int round = 0; round < kRoundsAtMost; ++round) {
            for (Point& point : points_) {
                point.fill.push_back(run(true, false, point));
                point.load.push_back(run(false, true, point));
                point.both.push_back(run(true, true, point));
                point.lockstep.push_back(run(true, true, point, 2));
                point.turns.push_back(run(true, true, point, 1));
            }
            if (relay_) {
                for (Point* point : relayed()) point->relay.push_back(run_relay(*point));
            }
            hash_.push_back(hash());
            copy_.push_back(copy());
            // Rank 0's clock decides for all.
            exchange_.run(status_, 0, world_.rank() == 0 && ms_since(measuring) < budget_ms());
            if (status_.failed || !exchange_.more()) break;
        }
        const double fixed = 2 * request_ms();  // begin, commit
        throw_on_any_failure(world_, status_, "sync set-up");
        Costs costs;
        costs.fill = fit(&Point::fill);
        costs.load = fit(&Point::load);
        costs.both = fit(&Point::both);
        costs.lockstep = fit(&Point::lockstep);
        costs.turns = fit(&Point::turns);
        if (relay_) costs.relay = fit_relay();
        costs.hash_gbps = static_cast<double>(hashed_bytes() * ranks()) / undisturbed(hash_) * 1e-6;
        costs.copy_gbps = static_cast<double>(hashed_bytes() * ranks()) / undisturbed(copy_) * 1e-6;
        costs.fixed_ms = fixed;
        costs.cache_bytes = cache_;
        costs.measured_at = seconds_since_1970();
        costs.took_ms = ms_since(start);
        return costs_from_json(parse_json_text(broadcast_text(world_, to_json(costs).dump())));
    }

  private:
    // Staging of all of them would stay in half of the cache; the first two are written past it all the same.
    static std::vector<Point> make_points(std::size_t cache) {
        std::size_t large = 64u << 10;
        while (large * 2 * static_cast<std::size_t>(kSlots) <= cache / 2 && large < 8 * kMebibyte) large *= 2;
        return {{large / 8, true, 48}, {large, true, 24}, {large, false, 24}};
    }

    std::size_t ranks() const { return static_cast<std::size_t>(world_.size()); }
    double budget_ms() const { return static_cast<double>(options_.budget.count()); }
    static std::size_t hashed_bytes() { return 8 * kMebibyte; }
    Stage fit(std::vector<double> Point::*times) const {
        std::array<StagePoint, 3> at;
        for (std::size_t i = 0; i < at.size(); ++i)
            at[i] = {static_cast<double>(points_[i].bytes), undisturbed(points_[i].*times)};
        return fit_stage(at[0], at[1], at[2]);
    }

    // A small bucket and a large one through the cache, and one past it. What a small one gains by its core's own cache is
    // in the slope between the first two.
    std::array<Point*, 3> relayed() { return {&small_cached_, &points_[2], &points_[1]}; }
    Stage fit_relay() {
        std::array<StagePoint, 3> at;
        for (std::size_t i = 0; i < at.size(); ++i) {
            const Point& point = *relayed()[i];
            at[i] = {static_cast<double>(point.bytes), undisturbed(point.relay)};
        }
        Stage stage = fit_stage(at[0], at[1], at[2]);
        std::swap(stage.cached_gbps,
                  stage.streamed_gbps);  // it takes the first two as written past the cache
        return stage;
    }

    void make_source() {
        try {
            source_.emplace(options_.shards, options_.from, options_.to,
                            std::clamp(4 * cache_, 64 * kMebibyte, 512 * kMebibyte) / ranks());
        } catch (const std::exception& error) {
            status_.fail("calibrate", "", -1, error.what());
        }
    }

    // A probe takes an equal part of its bytes on each of these cores, and engine e the e-th share of a bucket.
    void attach_shares() {
        const bool even = ranks() % engines_.size() == 0;
        for (std::size_t e = 0; e < engines_.size(); ++e)
            attach(e * ranks() / engines_.size(), even ? (e + 1) * ranks() / engines_.size() : 0, e);
    }

    // A plan is a part of every attachment; nothing will be loaded by this one. Of the cores of these ranks, to all engines or
    // to one.
    void attach(std::size_t first, std::size_t last, std::optional<std::size_t> to = {}) {
        each_engine(engines_, status_, "calibrate", -1, [&](engine::Engine& engine, std::size_t e) {
            if (to && e != *to) return;
            engine::TransferPlan plan;
            for (std::size_t rank = first; rank < last && !cores_.empty(); ++rank)
                plan.cores.push_back(cores_[rank]);
            const auto& tensors = engine.capabilities().tensors;
            for (std::size_t t = 0; t < tensors.size(); ++t) {
                const std::size_t width = dtype_size(tensors[t].dtype);
                const std::size_t bytes = engine::tensor_bytes(tensors[t]);
                for (std::size_t at = 0; at < bytes; at += kMebibyte) {
                    const std::size_t part = std::min(bytes - at, kMebibyte);
                    plan.transfers.push_back({static_cast<std::uint32_t>(t), 0, 0, tensors[t].dtype, 1,
                                              part / width, 0, part, at, part});
                }
            }
            plan.first.push_back(plan.transfers.size());
            engine.attach({staging_.region()}, plan, Deadline::after(options_.deadline));
        });
    }

    // Milliseconds of one of `count` buckets that pass through the slots as in a push: in the steady state
    // where both sides work. Every rank meets the others equally often, whatever failed.
    double run(bool fill, bool load, const Point& point, int slots = kSlots) {
        const bool stays = fill && !point.past_cache && !cores_.empty();
        const OnCore stay(stays ? cores_[static_cast<std::size_t>(world_.rank())] : -1);
        world_.barrier();
        const std::size_t bytes = point.bytes;
        const int count = point.buckets;
        Loading loading(static_cast<std::size_t>(count) * engines_.size());
        auto start = Clock::now();
        for (int b = 0; b < count; ++b) {
            const std::size_t at = static_cast<std::size_t>(b % slots) * bytes;
            if (fill) {
                if (slots == 1 && b > 0) {
                    wait(loading, b - 1);
                    exchange_.run(status_);
                }
                const std::size_t pieces = fill_lane(at, bytes, point.past_cache);
                if (load && slots > 1 && b + 1 >= slots) wait(loading, b + 1 - slots);
                exchange_.run(status_, pieces);
                // The pipeline is full: what comes before it counts neither side whole.
                if (load && b + 1 == slots) start = Clock::now();
            }
            if (load) post(loading, b, at, bytes);
        }
        const double filled = ms_since(start);
        for (int b = 0; b < count; ++b) wait(loading, b);
        if (fill && load) return filled / std::max(1, count - slots);
        return ms_since(start) / count;
    }

    // The engines' number is known to rank 0 alone.
    void make_relay() {
        std::int64_t engines = static_cast<std::int64_t>(engines_.size());
        world_.broadcast({reinterpret_cast<std::byte*>(&engines), sizeof(engines)}, 0);
        relay_.emplace(world_, engines_, static_cast<std::size_t>(engines));
    }

    // As run, of the one slot that a relay needs.
    double run_relay(const Point& point) {
        const OnCore stay(cores_[static_cast<std::size_t>(world_.rank())]);
        const auto buckets = static_cast<std::size_t>(point.buckets);
        relay_->begin(buckets, 1);
        world_.barrier();
        const engine::RelayProbe probe{buckets, point.bytes, staged_piece_bytes(point.bytes), 1};
        const Deadline deadline = Deadline::after(options_.deadline);
        relay_->start(status_, deadline, &probe);
        const auto start = Clock::now();
        while (relay_->written() < buckets && !status_.failed && relay_->wait_for_slot(status_, deadline)) {
            fill_lane(0, point.bytes, point.past_cache);
            if (!status_.failed) relay_->wrote();
        }
        if (relay_->written() < buckets || status_.failed) relay_->stop();
        if (!status_.failed) relay_->wait_for_ranks(status_, deadline, options_.deadline);
        if (!engines_.empty()) relay_->wait_taken(status_, deadline);
        if (status_.failed) relay_->stop();
        const double ms = ms_since(start) / point.buckets;
        exchange_.run(status_);
        return ms;
    }

    // This rank's share of a bucket, in pieces; returns their number.
    std::size_t fill_lane(std::size_t at, std::size_t bucket_bytes, bool past_cache) {
        const std::size_t lane = bucket_bytes / ranks() / 64 * 64;
        const std::size_t piece = staged_piece_bytes(bucket_bytes);
        std::size_t pieces = 0;
        Stream here = Stream::make_inline();
        for (std::size_t done = 0; done < lane && !status_.failed; done += piece, ++pieces) {
            const std::size_t bytes = std::min(piece, lane - done);
            ops::CopyItem item = source_->next(bytes);
            item.to =
                staging_.memory().subspan(at + static_cast<std::size_t>(world_.rank()) * lane + done, bytes);
            item.to_stride = bytes;
            item.checksum = exchange_.mine() + pieces;
            item.non_temporal = past_cache;
            ops::batched_copy(here, {&item, 1});
        }
        return pieces;
    }

    // Each engine takes its share of the bucket; they work at once, each its buckets in order.
    using Loading = std::vector<std::function<double()>>;  // [bucket][engine]
    void post(Loading& loading, int bucket, std::size_t at, std::size_t bytes) {
        const std::size_t share = std::max<std::size_t>(1, bytes / std::max<std::size_t>(1, engines_.size()));
        each_engine(engines_, status_, "calibrate", bucket, [&](engine::Engine& engine, std::size_t e) {
            loading[static_cast<std::size_t>(bucket) * engines_.size() + e] = engine.start_probe(
                at + e * share, share, staged_piece_bytes(bytes), Deadline::after(options_.deadline));
        });
    }
    void wait(Loading& loading, int bucket) {
        for (std::size_t e = 0; e < engines_.size(); ++e) {
            auto& wait_loaded = loading[static_cast<std::size_t>(bucket) * engines_.size() + e];
            if (!wait_loaded) continue;
            try {
                std::exchange(wait_loaded, nullptr)();
            } catch (const std::exception& error) {
                status_.fail("calibrate", engines_[e]->peer(), bucket, error.what());
            }
        }
    }

    // Milliseconds from the first rank's start to the last one's end, on the clock that all processes share: ranks that
    // work one after the other would each see the whole machine's rate.
    template <typename Work>
    double together_ms(const Work& work) {
        world_.barrier();
        const auto now = [] { return std::int64_t{Clock::now().time_since_epoch().count()}; };
        std::int64_t start = now();
        work();
        std::int64_t end = now();
        world_.all_reduce({reinterpret_cast<std::byte*>(&start), sizeof(start)}, DType::int64,
                          comm::ReduceOp::min);
        world_.all_reduce({reinterpret_cast<std::byte*>(&end), sizeof(end)}, DType::int64,
                          comm::ReduceOp::max);
        return static_cast<double>(end - start) * 1e-6;
    }

    double hash() {
        return together_ms([&] {
            for (std::size_t done = 0; done < hashed_bytes(); done += kHashPiece) {
                ops::CopyItem item = source_->next(kHashPiece);
                item.to = {nullptr, kHashPiece};
                item.to_stride = item.to.bytes;
                ops::copy_checksum(item);
            }
        });
    }

    // Into staging, over and over: past the cache that is to memory.
    double copy() {
        return together_ms([&] {
            Stream here = Stream::make_inline();
            const std::size_t lane = staging_.memory().bytes / ranks() / kHashPiece * kHashPiece;
            const std::size_t mine = static_cast<std::size_t>(world_.rank()) * lane;
            for (std::size_t done = 0; done < hashed_bytes() && lane > 0;) {
                ops::CopyItem item;
                item.from = source_->next(kHashPiece).from;
                item.from.bytes = std::min({item.from.bytes, kHashPiece, hashed_bytes() - done});
                item.to =
                    staging_.memory().subspan(mine + done % lane / kHashPiece * kHashPiece, item.from.bytes);
                done += item.from.bytes;
                ops::batched_copy(here, {&item, 1});
            }
        });
    }

    // A question and its answer, of all engines one after the other.
    double request_ms() {
        std::vector<double> times;
        for (int i = 0; i < 9; ++i) {
            const auto start = Clock::now();
            each_engine(engines_, status_, "calibrate", -1, [this](engine::Engine& engine, std::size_t) {
                engine.held(Deadline::after(options_.deadline));
            });
            times.push_back(ms_since(start));
        }
        return undisturbed(times);
    }

    comm::Communicator& world_;
    const Engines& engines_;
    const CalibrationOptions& options_;
    std::size_t cache_;
    std::vector<int> cores_;  // [rank], or none
    std::vector<Point> points_;
    Point small_cached_{points_.front().bytes, false, points_.front().buckets};
    Staging staging_;
    std::optional<Relay> relay_;
    std::optional<ProbeSource> source_;
    Exchange<ops::Checksum> exchange_;
    PushStatus status_;
    std::vector<double> hash_, copy_;
};

}  // namespace

Costs calibrate(comm::Communicator& world, const Engines& engines, const CalibrationOptions& options) {
    return Calibration(world, engines, options).measure();
}

}  // namespace tandem::sync
