#include "sync/cost/costs.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "common/error.h"

namespace tandem::sync {
namespace {

constexpr double kLeastMs = 1e-6;

nlohmann::json stage_json(const Stage& stage) {
    return {{"overhead_ms", stage.overhead_ms},
            {"cached_gbps", stage.cached_gbps},
            {"streamed_gbps", stage.streamed_gbps}};
}

double number(const nlohmann::json& json, const char* key, double least) {
    const auto found = json.find(key);
    enforce(found != json.end() && found->is_number(), "costs without {}", key);
    const double value = found->get<double>();
    enforce(std::isfinite(value) && value >= least, "costs with {} {}", key, value);
    return value;
}

Stage stage_from_json(const nlohmann::json& costs, const char* key, double least_gbps = 1e-6) {
    const auto found = costs.find(key);
    enforce(found != costs.end() && found->is_object(), "costs without {}", key);
    return {number(*found, "overhead_ms", 0), number(*found, "cached_gbps", least_gbps),
            number(*found, "streamed_gbps", least_gbps)};
}

}  // namespace

Stage fit_stage(const StagePoint& small, const StagePoint& large, const StagePoint& cached) {
    const double slope = std::max(0.0, (large.ms - small.ms) / (large.bytes - small.bytes));
    Stage stage;
    // Measured unevenly, the small bucket may look dearer than the large one.
    stage.overhead_ms = std::clamp(small.ms - slope * small.bytes, 0.0, 0.9 * std::min(small.ms, large.ms));
    const auto rate = [&](const StagePoint& point) {
        return point.bytes / std::max(0.1 * point.ms + kLeastMs, point.ms - stage.overhead_ms) * 1e-6;
    };
    stage.cached_gbps = rate(cached);
    stage.streamed_gbps = rate(large);
    return stage;
}

nlohmann::json to_json(const Costs& costs) {
    return {{"fill", stage_json(costs.fill)},   {"load", stage_json(costs.load)},
            {"both", stage_json(costs.both)},   {"lockstep", stage_json(costs.lockstep)},
            {"turns", stage_json(costs.turns)}, {"relay", stage_json(costs.relay)},
            {"hash_gbps", costs.hash_gbps},     {"copy_gbps", costs.copy_gbps},
            {"core_ns", costs.core_ns},         {"fixed_ms", costs.fixed_ms},
            {"cache_bytes", costs.cache_bytes}, {"took_ms", costs.took_ms},
            {"measured_at", costs.measured_at}};
}

Costs costs_from_json(const nlohmann::json& json) {
    enforce(json.is_object(), "costs that are no object");
    Costs costs;
    costs.fill = stage_from_json(json, "fill");
    costs.load = stage_from_json(json, "load");
    costs.both = stage_from_json(json, "both");
    costs.lockstep = stage_from_json(json, "lockstep");
    costs.turns = stage_from_json(json, "turns");
    costs.relay = stage_from_json(json, "relay", 0);
    enforce((costs.relay.cached_gbps > 0) == (costs.relay.streamed_gbps > 0), "costs with half a relay");
    costs.hash_gbps = number(json, "hash_gbps", 1e-6);
    costs.copy_gbps = number(json, "copy_gbps", 1e-6);
    costs.core_ns = number(json, "core_ns", 0);
    costs.fixed_ms = number(json, "fixed_ms", 0);
    costs.cache_bytes = static_cast<std::size_t>(number(json, "cache_bytes", 0));
    costs.took_ms = number(json, "took_ms", 0);
    costs.measured_at = static_cast<std::int64_t>(number(json, "measured_at", 0));
    return costs;
}

}  // namespace tandem::sync
