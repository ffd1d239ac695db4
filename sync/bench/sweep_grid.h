// A sweep's results as a grid, bucket sizes by depths, from result["sweep"].
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

namespace tandem::sync {

struct SweepPoint {
    double bucket_bytes = 0;
    int depth = 0;
    double push_ms = 0;                  // median of the whole push: prepare, and pause to resume
    double ratio = 0;                    // of push_ms to the speed of light
    double pause_ratio = 0;              // pause to resume alone
    bool past_cache = true;              // how its staging was written
    std::optional<double> predicted_ms;  // of the whole push, by the cost model
    // The predicted time to the same speed of light.
    std::optional<double> predicted_ratio() const;
};

SweepPoint sweep_point(const nlohmann::json& entry);

// Of each size and depth the faster way, through the cache or past it.
class SweepGrid {
  public:
    explicit SweepGrid(const nlohmann::json& result);  // empty where the result has no sweep

    bool empty() const { return points_.empty(); }
    const std::vector<double>& bucket_bytes() const { return bucket_bytes_; }  // growing
    const std::vector<int>& depths() const { return depths_; }                 // growing
    const SweepPoint* at(double bucket_bytes, int depth) const;                // null: not measured
    const SweepPoint& best() const;                                            // least ratio; not empty()
    const SweepPoint& worst() const;

  private:
    std::map<std::pair<double, int>, SweepPoint> points_;
    std::vector<double> bucket_bytes_;
    std::vector<int> depths_;
};

}  // namespace tandem::sync
