// The book of a sweep on a machine whose cores move: its candidates take turns, a few pushes each, and what was measured of
// them counts by the state of the machine. Pure; every rank keeps the same one.
#pragma once

#include <array>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "sync/cost/cores.h"
#include "sync/cost/predict.h"

namespace tandem::sync {

struct SweepSample {
    double total_ms = 0;  // pause to resume
    double push_ms = 0;   // and prepare
    double light_ms = 0;  // the copy right before it
};

class SweepRounds {
  public:
    static constexpr std::size_t kEnough = 4;  // samples of each candidate, in one state
    static constexpr int kRounds = 8;          // at most

    // The sizes and depths of a sweep, each past the cache and, where it fits half of `cache_bytes`, through it.
    static std::vector<Buckets> grid(std::size_t cache_bytes, int least_depth);

    // Candidate 0 is the session's own choice.
    explicit SweepRounds(std::vector<Buckets> candidates)
        : candidates_(std::move(candidates)), seen_(size()) {}

    std::size_t size() const { return candidates_.size() + 1; }
    const Buckets& candidate(std::size_t index) const { return candidates_[index - 1]; }

    // A push before and after which the machine was seen in these states: where they differ it does not count.
    void add(std::size_t index, Cores before, Cores after, const SweepSample& sample);
    void chose(const Buckets& buckets) { chosen_ = buckets; }
    // The cost model's time for a candidate's whole push.
    void predict(std::size_t index, double ms) { predicted_ms_.at(index) = ms; }
    bool wants(std::size_t index, Cores cores) const { return of(index, cores).size() < kEnough; }
    bool done() const;    // there is a state in which nothing is wanted
    Cores cores() const;  // in which least is wanted

    // sweep [{bucket_bytes, depth, past_cache, syncs, median_ms, speed_of_light_ratio, push_ms, push_ratio,
    // predicted_push_ms}] (lower quartiles; ratios are to that of all copies in this state), sweep_chosen (likewise),
    // sweep_cores, sweep_dropped: samples in another state than that.
    nlohmann::json result() const;

  private:
    using Samples = std::vector<SweepSample>;
    const Samples& of(std::size_t index, Cores cores) const {
        return seen_[index][static_cast<std::size_t>(cores)];
    }
    std::size_t wanted(Cores cores) const;
    double quartile_of(std::size_t index, double SweepSample::*value) const;
    double light_ms() const;
    nlohmann::json entry(std::size_t index, const Buckets& buckets) const;

    std::vector<Buckets> candidates_;
    std::vector<std::array<Samples, kCoresStates>> seen_;
    std::vector<double> predicted_ms_ = std::vector<double>(size(), 0.0);
    Buckets chosen_;
    std::size_t moved_ = 0;
};

}  // namespace tandem::sync
