#include "sync/cost/tune.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <thread>

#include "common/error.h"
#include "common/json_text.h"
#include "common/log.h"
#include "sync/cost/calibrate.h"
#include "sync/cost/host.h"
#include "sync/cost/store.h"
#include "sync/strategy/collectives.h"

namespace tandem::sync {
namespace {

// The dtypes that most of a model has: those of the largest tensor.
template <typename Tensors>
DType main_dtype(const Tensors& tensors) {
    const auto largest = std::max_element(tensors.begin(), tensors.end(), [](const auto& a, const auto& b) {
        return numel(a.shape) < numel(b.shape);
    });
    return largest->dtype;
}

// Names all that the costs depend on besides the bytes. Engines are on the trainer's host: they map its
// memory.
std::string key_of(const comm::Communicator& world, const ReshardPlan& plan, const Engines& engines,
                   DType from, DType to) {
    return fmt::format("{}, {}, {} cores; {} ranks; {} x engine {} on the same host; {} to {}", host_name(),
                       processor_name(), std::thread::hardware_concurrency(), world.size(),
                       plan.engine().size(), engines.front()->capabilities().engine, dtype_name(from),
                       dtype_name(to));
}

std::string age_text(std::int64_t seconds) {
    if (seconds < 120) return fmt::format("{} s", seconds);
    if (seconds < 2 * 3600) return fmt::format("{} min", seconds / 60);
    if (seconds < 48 * 3600) return fmt::format("{} h", seconds / 3600);
    return fmt::format("{} days", seconds / 86400);
}

std::string size_text(std::size_t bytes) {
    return fmt::format("{:.4g} MiB", static_cast<double>(bytes) / 1048576.0);
}

// From the file of rank 0, or measured by all.
void find_costs(comm::Communicator& world, const ReshardPlan& plan, const Engines& engines,
                const SessionOptions& requested, Tuning& tuning) {
    const DType from = main_dtype(plan.source().tensors);
    const DType to = main_dtype(plan.engine().front());
    const std::filesystem::path file = costs_file();
    const std::int64_t now = seconds_since_1970();
    std::string key;
    std::string known;
    if (world.rank() == 0) {
        key = key_of(world, plan, engines, from, to);
        const auto stored = requested.calibrate ? std::nullopt : stored_costs(file, key, now);
        if (stored) known = to_json(*stored).dump();
    }
    known = broadcast_text(world, known);
    if (!known.empty()) {
        tuning.costs = costs_from_json(parse_json_text(known));
        tuning.age_s = std::max<std::int64_t>(1, now - tuning.costs->measured_at);
        return;
    }
    CalibrationOptions options;
    options.from = from;
    options.to = to;
    options.deadline = requested.deadlines.load;
    tuning.costs = calibrate(world, engines, options);
    if (world.rank() == 0) store_costs(file, key, *tuning.costs);
}

// Collective.
bool any_remote(comm::Communicator& world, const Engines& engines) {
    const bool mine = std::any_of(engines.begin(), engines.end(),
                                  [](const auto& engine) { return engine->capabilities().remote; });
    return !broadcast_text(world, mine ? "remote" : "").empty();
}

// Over a network a bucket must be large beside a round trip, and what is in flight beside the bytes that are on the way:
// 96 MiB behind the one that is being filled are 20 ms at 5 GB/s. Caches do not matter.
void choose_for_network(const SessionOptions& requested, SessionOptions& options, Tuning& tuning) {
    constexpr std::size_t kBucketBytes = std::size_t{32} << 20;
    constexpr int kDepth = 4;
    if (requested.bucket_bytes == 0) tuning.bucket_bytes = options.bucket_bytes = kBucketBytes;
    if (requested.depth == 0) options.depth = kDepth;
    if (tuning.chosen_by != "user") tuning.chosen_by = "network";
}

}  // namespace

nlohmann::json to_json(const Tuning& tuning) {
    nlohmann::json json{{"chosen_by", tuning.chosen_by}, {"chosen_bucket_bytes", tuning.bucket_bytes}};
    if (tuning.prediction) {
        json["predicted_ms"] = tuning.prediction->total_ms;
        json["predicted_prepare_ms"] = tuning.prediction->prepare_ms;
    }
    if (tuning.costs) {
        json["calibration"] = to_json(*tuning.costs);
        json["calibration"]["age_s"] = tuning.age_s;
    }
    return json;
}

Tuning tune(comm::Communicator& world, const ReshardPlan& plan, const Engines& engines, CostModel model,
            const SessionOptions& requested, SessionOptions& options) {
    Tuning tuning;
    const bool staged = model == CostModel::gather;
    const bool by_user = requested.bucket_bytes > 0 && (requested.depth > 0 || !staged);
    if (by_user) tuning.chosen_by = "user";
    tuning.bucket_bytes = options.bucket_bytes;
    if (plan.bytes() < kLeastTunedBytes || model == CostModel::none) return tuning;
    if (any_remote(world, engines)) {
        choose_for_network(requested, options, tuning);
        return tuning;
    }
    find_costs(world, plan, engines, requested, tuning);
    if (staged) {
        const Buckets buckets =
            choose_buckets(*tuning.costs, plan.bytes(), {requested.bucket_bytes, requested.depth});
        tuning.bucket_bytes = options.bucket_bytes = buckets.bytes;
        options.depth = buckets.depth;
        options.past_cache = requested.past_cache.value_or(buckets.past_cache);
        if (!by_user) tuning.chosen_by = "cost model";
    }
    tuning.prediction = staged ? predict_gather(*tuning.costs, plan.bytes(), options.bucket_bytes,
                                                options.depth, *options.past_cache)
                               : predict_direct(*tuning.costs, plan.bytes(), options.bucket_bytes);
    if (world.rank() != 0) return tuning;
    const std::string origin = tuning.age_s == 0
                                   ? fmt::format("calibrated in {:.1f} s", tuning.costs->took_ms * 1e-3)
                                   : fmt::format("calibrated {} ago", age_text(tuning.age_s));
    const std::string depth =
        staged ? fmt::format(", depth {}{}", options.depth, *options.past_cache ? ", past the cache" : "")
               : "";
    log_info("sync: buckets of {}{}, by {}: predicted {:.1f} ms ({})", size_text(options.bucket_bytes), depth,
             tuning.chosen_by, tuning.prediction->total_ms, origin);
    return tuning;
}

}  // namespace tandem::sync
