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

SweepGrid::SweepGrid(const nlohmann::json& result) {
    if (!result.contains("sweep")) return;
    std::set<double> sizes;
    std::set<int> depths;
    for (const nlohmann::json& one : result.at("sweep")) {
        SweepPoint point{one.at("bucket_bytes").get<double>(),
                         one.at("depth").get<int>(),
                         one.at("push_ms").get<double>(),
                         one.at("push_ratio").get<double>(),
                         one.at("speed_of_light_ratio").get<double>(),
                         std::nullopt};
        if (one.contains("predicted_push_ms")) point.predicted_ms = one.at("predicted_push_ms").get<double>();
        sizes.insert(point.bucket_bytes);
        depths.insert(point.depth);
        points_[{point.bucket_bytes, point.depth}] = point;
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
