#include "sync/bench/sweep_grid.h"

#include <algorithm>
#include <set>

namespace tandem::sync {
namespace {

bool faster(const std::pair<const std::pair<double, int>, SweepPoint>& a,
            const std::pair<const std::pair<double, int>, SweepPoint>& b) {
    return a.second.ratio < b.second.ratio;
}

}  // namespace

std::optional<double> SweepPoint::predicted_ratio() const {
    if (!predicted_ms || push_ms <= 0) return std::nullopt;
    return *predicted_ms * ratio / push_ms;
}

SweepPoint sweep_point(const nlohmann::json& entry) {
    SweepPoint point{entry.at("bucket_bytes").get<double>(),
                     entry.at("depth").get<int>(),
                     entry.at("push_ms").get<double>(),
                     entry.at("push_ratio").get<double>(),
                     entry.at("speed_of_light_ratio").get<double>(),
                     entry.value("past_cache", true),
                     std::nullopt};
    if (entry.contains("predicted_push_ms")) point.predicted_ms = entry.at("predicted_push_ms").get<double>();
    return point;
}

SweepGrid::SweepGrid(const nlohmann::json& result) {
    if (!result.contains("sweep")) return;
    std::set<double> sizes;
    std::set<int> depths;
    for (const nlohmann::json& one : result.at("sweep")) {
        const SweepPoint point = sweep_point(one);
        sizes.insert(point.bucket_bytes);
        depths.insert(point.depth);
        const auto [at, first] = points_.try_emplace({point.bucket_bytes, point.depth}, point);
        if (!first && point.ratio < at->second.ratio) at->second = point;
    }
    bucket_bytes_.assign(sizes.begin(), sizes.end());
    depths_.assign(depths.begin(), depths.end());
}

const SweepPoint* SweepGrid::at(double bucket_bytes, int depth) const {
    const auto found = points_.find({bucket_bytes, depth});
    return found == points_.end() ? nullptr : &found->second;
}

const SweepPoint& SweepGrid::best() const {
    return std::min_element(points_.begin(), points_.end(), faster)->second;
}

const SweepPoint& SweepGrid::worst() const {
    return std::max_element(points_.begin(), points_.end(), faster)->second;
}

}  // namespace tandem::sync
