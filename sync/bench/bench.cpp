#include "sync/bench/bench.h"

#include <algorithm>
#include <optional>
#include <thread>

#include "common/device/cpu_kernels.h"
#include "common/device/devices.h"
#include "common/device/memory.h"
#include "common/error.h"
#include "common/progress.h"
#include "sync/bench/shapes.h"
#include "sync/bench/source.h"
#include "sync/bench/sweep_rounds.h"
#include "sync/bench/trace.h"
#include "sync/cost/host.h"
#include "sync/cost/speed_of_light.h"
#include "sync/session/modes.h"
#include "sync/session/session.h"
#include "sync/strategy/bucket_sizes.h"

namespace tandem::sync {
namespace {

double quantile(std::vector<double> values, double q) {
    std::sort(values.begin(), values.end());
    return values[static_cast<std::size_t>(q * static_cast<double>(values.size() - 1) + 0.5)];
}

std::uint64_t allocations() {
    std::uint64_t sum = 0;
    for (const auto& [tag, stats] : all_memory_stats()) sum += stats.allocations;
    return sum;
}

nlohmann::json phase_medians(const std::vector<SyncReport>& reports) {
    const auto median = [&](double PhaseTimes::*phase) {
        std::vector<double> values;
        for (const SyncReport& report : reports) values.push_back(report.phase_ms.*phase);
        return quantile(values, 0.5);
    };
    return {{"prepare", median(&PhaseTimes::prepare)}, {"pause", median(&PhaseTimes::pause)},
            {"gather", median(&PhaseTimes::gather)},   {"copy", median(&PhaseTimes::copy)},
            {"load", median(&PhaseTimes::load)},       {"resume", median(&PhaseTimes::resume)},
            {"finish", median(&PhaseTimes::finish)},   {"pack", median(&PhaseTimes::pack)}};
}

// One session, verified on its first and last push, timed on the ones between.
class Run {
  public:
    Run(const std::shared_ptr<comm::Communicator>& world, Engines engines, SyntheticSource& source,
        const BenchOptions& options, const Buckets& buckets, std::optional<bool> past_cache,
        std::int64_t& version)
        : world_(world),
          source_(source),
          options_(options),
          session_options_(make_options(options, buckets, past_cache, version == 0)),
          session_(world, source, std::move(engines), session_options_),
          version_(version) {}

    void measure() {
        std::optional<Progress> progress;
        if (world_->rank() == 0) progress.emplace("syncs", options_.iterations + 2);
        const auto done = [&](int count, const char* note) {
            if (progress) progress->update(count, note);
        };
        // The first touches everything for the first time: verified, not timed.
        done(0, "first, verified");
        last_ = push(1.0);
        verified_ = session_.weights_match().match;
        done(1, "");
        push(options_.changed);
        SpeedOfLight light(*world_, last_.bytes, options_.where());
        light.measure_ms();
        for (int i = 0; i < options_.iterations; ++i) {
            lights_.push_back(light.measure_ms());
            const std::uint64_t before = allocations();
            reports_.push_back(push(options_.changed));
            cores_.push_back(session_.tuning().cores);
            allocated_ += allocations() - before;
            done(i + 2, "");
        }
        verified_ = session_.weights_match().match && verified_;
        done(options_.iterations + 2, verified_ ? "verified" : "DIFFERENT");
    }

    // A turn in a sweep. What is chosen tries both ways through the cache in each state of the machine: such a push does not
    // count.
    void take_turn(SpeedOfLight& light, SweepRounds& rounds, std::size_t index) {
        constexpr int kCounted = 2, kAtMost = 9;
        std::optional<SweepSample> last;
        Cores before = Cores::unknown;
        for (int i = 0, counted = 0; i < kAtMost && counted < kCounted; ++i) {
            const double light_ms = light.measure_ms();
            const SyncReport report = push(options_.changed);
            const Tuning& tuning = session_.tuning();
            if (last) {
                rounds.add(index, before, tuning.cores, *last);
                ++counted;
            }
            before = tuning.cores;
            last.reset();
            if (i == 0 || !tuning.settled) continue;
            last = {report.total_ms, report.total_ms + report.phase_ms.prepare, light_ms};
            if (index == 0) rounds.chose({tuning.bucket_bytes, report.depth, tuning.past_cache});
        }
        if (const auto& predicted = session_.tuning().prediction)
            rounds.predict(index, predicted->prepare_ms + predicted->total_ms);
        verified_ = session_.weights_match().match;
    }
    bool verified() const { return verified_; }
    Cores cores() const { return session_.tuning().cores; }

    nlohmann::json result() const {
        const SyncReport& last = reports_.back();
        const double median = quantile(totals(), 0.5);
        const double light = quantile(lights_, 0.5);
        // Each to the copy right before it: the machine's rate changes.
        std::vector<double> ratios, prepared_ratios;
        for (std::size_t i = 0; i < reports_.size(); ++i) {
            ratios.push_back(reports_[i].total_ms / lights_[i]);
            prepared_ratios.push_back((reports_[i].total_ms + reports_[i].phase_ms.prepare) / lights_[i]);
        }
        const nlohmann::json phases = phase_medians(reports_);
        const auto gigabytes_per_s = [&](double ms) { return static_cast<double>(last.bytes) / ms * 1e-6; };
        nlohmann::json result{{"bytes", last.bytes},
                              {"bytes_moved", last.bytes_moved},
                              {"buckets", last.buckets},
                              {"bucket_bytes", last.bucket_bytes},
                              {"depth", last.depth},
                              {"relayed", last.relayed},
                              {"median_ms", median},
                              {"min_ms", quantile(totals(), 0.0)},
                              {"p95_ms", quantile(totals(), 0.95)},
                              {"totals_ms", totals()},
                              {"phase_ms", phases},
                              {"gbps", gigabytes_per_s(median)},
                              {"copy_gbps", gigabytes_per_s(light)},
                              {"speed_of_light_ms", light},
                              {"speed_of_light_min_ms", quantile(lights_, 0.0)},
                              {"lights_ms", lights_},
                              {"speed_of_light_ratio", quantile(ratios, 0.5)},
                              {"prepared_ratio", quantile(prepared_ratios, 0.5)},
                              {"staging_peak_bytes", memory_stats("staging").peak_bytes},
                              {"staging_cap_bytes", staging_cap(last)},
                              {"steady_state_allocations", allocated_},
                              {"verified", verified_}};
        result.update(to_json(session_.tuning()));
        result["by_cores"] = by_cores(ratios);
        return result;
    }

  private:
    // The timed syncs, by what the machine was like at each.
    nlohmann::json by_cores(const std::vector<double>& ratios) const {
        nlohmann::json result = nlohmann::json::object();
        for (const Cores cores : {Cores::unknown, Cores::share_cache, Cores::apart}) {
            std::vector<double> ms, lights, mine;
            for (std::size_t i = 0; i < cores_.size(); ++i) {
                if (cores_[i] != cores) continue;
                ms.push_back(reports_[i].total_ms);
                lights.push_back(lights_[i]);
                mine.push_back(ratios[i]);
            }
            if (ms.empty()) continue;
            const double light = quantile(lights, 0.5);
            result[std::string(cores_name(cores))] = {
                {"syncs", ms.size()},
                {"median_ms", quantile(ms, 0.5)},
                {"copy_gbps", static_cast<double>(reports_.back().bytes) / light * 1e-6},
                {"speed_of_light_ratio", quantile(mine, 0.5)}};
        }
        return result;
    }

    static SessionOptions make_options(const BenchOptions& options, const Buckets& buckets,
                                       std::optional<bool> past_cache, bool first) {
        SessionOptions result;
        result.mode = mode_from_name(options.mode);
        result.bucket_bytes = buckets.bytes;
        result.depth = buckets.depth;
        result.past_cache = past_cache;
        result.calibrate = options.calibrate && first;
        return result;
    }

    // depth × bucket; nothing where a mode has no staging.
    std::size_t staging_cap(const SyncReport& last) const {
        if (last.staging_bytes == 0) return 0;
        return static_cast<std::size_t>(last.depth) *
               std::max(session_options_.bucket_bytes, last.bucket_bytes);
    }

    SyncReport push(double changed) {
        source_.move_into(session_);
        source_.change(changed);
        world_->barrier();
        return session_.push(++version_);
    }

    std::vector<double> totals() const {
        std::vector<double> values;
        for (const SyncReport& report : reports_) values.push_back(report.total_ms);
        return values;
    }

    std::shared_ptr<comm::Communicator> world_;
    SyntheticSource& source_;
    const BenchOptions& options_;
    SessionOptions session_options_;
    Session session_;
    std::int64_t& version_;
    SyncReport last_;
    std::vector<SyncReport> reports_;
    std::vector<double> lights_;
    std::vector<Cores> cores_;
    std::uint64_t allocated_ = 0;
    bool verified_ = false;
};

}  // namespace

nlohmann::json run_bench(const std::shared_ptr<comm::Communicator>& world,
                         const std::function<Engines()>& connect, const BenchOptions& options) {
    std::vector<engine::TensorInfo> whole;
    for (const model::ParameterSpec& tensor : model_tensors(options.shapes))
        whole.push_back({tensor.name, tensor.shape, DType::float32, {}});
    const DeviceMesh mesh = options.mesh.over(world);
    SyntheticSource source(whole, mesh, options.holdings(mesh), dtype_from_name(options.source_dtype),
                           options.where());
    std::int64_t version = 0;
    const auto run = [&](const Buckets& buckets, std::optional<bool> past_cache = {}) {
        reset_memory_peaks();
        return Run(world, world->rank() == 0 ? connect() : Engines{}, source, options, buckets, past_cache,
                   version);
    };
    nlohmann::json result = [&] {
        Run one = run({static_cast<std::size_t>(options.bucket_mib * 1048576.0), options.depth});
        one.measure();
        return one.result();
    }();
    if (options.sweep) {
        SweepRounds rounds(
            SweepRounds::grid(last_level_cache_bytes(), traits(mode_from_name(options.mode)).least_depth));
        SpeedOfLight light(*world, result["bytes"].get<std::size_t>(), options.where());
        std::optional<Progress> progress;
        if (world->rank() == 0)
            progress.emplace("turns", static_cast<std::int64_t>(rounds.size()) * SweepRounds::kRounds);
        Cores now = Cores::unknown;
        std::size_t turns = 0;
        for (int round = 0; round < SweepRounds::kRounds && !rounds.done(); ++round) {
            for (std::size_t i = 0; i < rounds.size(); ++i, ++turns) {
                if (!rounds.wants(i, now)) continue;
                const Buckets buckets = i == 0 ? Buckets{} : rounds.candidate(i);
                Run one = run(buckets, i == 0 ? std::nullopt : std::optional(buckets.past_cache));
                one.take_turn(light, rounds, i);
                now = one.cores();
                result["verified"] = result["verified"].get<bool>() && one.verified();
                if (progress)
                    progress->update(static_cast<std::int64_t>(turns) + 1, std::string(cores_name(now)));
            }
        }
        result.update(rounds.result());
    }
    if (!options.trace.empty()) write_trace(*world, options.trace);
    if (world->rank() != 0) return nullptr;
    result["shapes"] = options.shapes;
    result["mode"] = options.mode;
    result["device"] = to_string(options.where());
    result["emulated"] = options.where().type == DeviceType::cuda && computes_on_cpu(options.where());
    result["transport"] = options.over_tcp()                         ? "tcp"
                          : options.transport == "nccl"              ? "nccl"
                          : options.where().type == DeviceType::cuda ? "cuda_ipc"
                                                                     : "shm";
    result["mesh"] = options.mesh.json();
    result["engine_tp"] = options.engine_tp;
    result["changed"] = options.changed;
    result["source_dtype"] = dtype_name(dtype_from_name(options.source_dtype));
    result["engine_dtype"] = dtype_name(dtype_from_name(options.engine_dtype));
    result["iterations"] = options.iterations;
    if (options.link_gbps > 0) result["link_gbps"] = options.link_gbps;
    result["hardware"] = fmt::format("{}, {} cores", processor_name(), std::thread::hardware_concurrency());
    if (options.where().type == DeviceType::cuda)
        result["hardware"] = device_info(options.where()).name + "; " + result["hardware"].get<std::string>();
    return result;
}

}  // namespace tandem::sync
