#include "sync/bench/bench.h"

#include <algorithm>
#include <fstream>
#include <thread>

#include "common/device/memory.h"
#include "common/error.h"
#include "sync/bench/shapes.h"
#include "sync/bench/source.h"
#include "sync/bench/speed_of_light.h"
#include "sync/session/session.h"

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

std::string processor() {
    std::ifstream file("/proc/cpuinfo");
    for (std::string line; std::getline(file, line);) {
        if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
    }
    return "unknown processor";
}

nlohmann::json phase_medians(const std::vector<SyncReport>& reports) {
    const auto median = [&](double PhaseTimes::*phase) {
        std::vector<double> values;
        for (const SyncReport& report : reports) values.push_back(report.phase_ms.*phase);
        return quantile(values, 0.5);
    };
    return {{"prepare", median(&PhaseTimes::prepare)}, {"pause", median(&PhaseTimes::pause)},
            {"gather", median(&PhaseTimes::gather)},   {"copy", median(&PhaseTimes::copy)},
            {"load", median(&PhaseTimes::load)},       {"resume", median(&PhaseTimes::resume)}};
}

}  // namespace

int BenchOptions::world_size() const {
    int size = 1;
    for (const int axis : mesh) size *= axis;
    return size;
}

void BenchOptions::validate() const {
    const auto check = [](bool ok, const char* option, const std::string& message) {
        if (!ok) throw ConfigError("command line", option, message);
    };
    check(!mesh.empty() && mesh.size() <= 2 &&
              std::all_of(mesh.begin(), mesh.end(), [](int n) { return n >= 1; }) && world_size() <= 64,
          "--mesh", "one or two positive sizes, at most 64 ranks: dp,cp");
    check(bucket_mib >= 0 && bucket_mib <= 65536, "--bucket-mib", "must be from 0 to 65536");
    check(depth == 0 || (depth >= 2 && depth <= 64), "--depth", "must be 0 or from 2 to 64");
    check(iterations >= 1 && iterations <= 100'000, "--iterations", "must be from 1 to 100000");
    const auto floating = [](DType dtype) { return dtype == DType::float32 || dtype == DType::bfloat16; };
    check(floating(source_dtype), "--source-dtype", "must be float32 or bfloat16");
    check(floating(engine_dtype), "--engine-dtype", "must be float32 or bfloat16");
    try {
        model_by_name(shapes);
    } catch (const InvalidArgument& error) {
        throw ConfigError("command line", "--shapes", error.what());
    }
}

nlohmann::json run_bench(std::shared_ptr<comm::Communicator> world, std::unique_ptr<engine::Engine> engine,
                         const BenchOptions& options) {
    const bool first_rank = engine != nullptr;
    const auto tensors = tensors_of(model_by_name(options.shapes), options.engine_dtype);
    const std::vector<std::string> axes{"dp", "cp"};
    const DeviceMesh mesh = DeviceMesh::create(
        world, options.mesh, {axes.begin(), axes.begin() + static_cast<std::ptrdiff_t>(options.mesh.size())});
    SyntheticSource source(tensors, mesh, options.source_dtype, options.shard_all);
    SessionOptions session_options;
    session_options.bucket_bytes = static_cast<std::size_t>(options.bucket_mib * 1048576.0);
    session_options.depth = options.depth;
    Session session(world, source, std::move(engine), session_options);

    // The first iteration touches everything for the first time: verified, not timed.
    std::int64_t version = 1;
    session.push(version);
    bool verified = session.weights_match().match;

    std::vector<SyncReport> reports;
    std::vector<double> totals;
    std::vector<double> lights;
    std::uint64_t allocated = 0;
    {
        SpeedOfLight light(*world, session.push(++version).bytes);
        light.measure_ms();
        for (int i = 0; i < options.iterations; ++i) {
            lights.push_back(light.measure_ms());
            if (i + 1 == options.iterations) source.set_step(1);  // the last one pushes other values
            world->barrier();
            const std::uint64_t before = allocations();
            reports.push_back(session.push(++version));
            allocated += allocations() - before;
            totals.push_back(reports.back().total_ms);
        }
    }
    verified = session.weights_match().match && verified;
    if (!first_rank) return nullptr;

    const SyncReport& last = reports.back();
    const double median = quantile(totals, 0.5);
    const double light = quantile(lights, 0.5);
    const auto gigabytes_per_s = [&](double ms) { return static_cast<double>(last.bytes) / ms * 1e-6; };
    return {{"shapes", options.shapes},
            {"mode", "gather"},
            {"mesh", options.mesh},
            {"source_dtype", dtype_name(options.source_dtype)},
            {"engine_dtype", dtype_name(options.engine_dtype)},
            {"iterations", options.iterations},
            {"bytes", last.bytes},
            {"bytes_moved", last.bytes_moved},
            {"buckets", last.buckets},
            {"bucket_bytes", last.bucket_bytes},
            {"depth", last.depth},
            {"median_ms", median},
            {"min_ms", quantile(totals, 0.0)},
            {"p95_ms", quantile(totals, 0.95)},
            {"phase_ms", phase_medians(reports)},
            {"gbps", gigabytes_per_s(median)},
            {"copy_gbps", gigabytes_per_s(light)},
            {"speed_of_light_ms", light},
            {"speed_of_light_min_ms", quantile(lights, 0.0)},
            {"speed_of_light_ratio", median / light},
            {"staging_peak_bytes", memory_stats("staging").peak_bytes},
            {"staging_cap_bytes", static_cast<std::size_t>(last.depth) *
                                      std::max(session_options.bucket_bytes, last.bucket_bytes)},
            {"steady_state_allocations", allocated},
            {"verified", verified},
            {"hardware", fmt::format("{}, {} cores", processor(), std::thread::hardware_concurrency())}};
}

}  // namespace tandem::sync
