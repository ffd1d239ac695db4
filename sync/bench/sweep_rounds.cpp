#include "sync/bench/sweep_rounds.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace tandem::sync {
namespace {

constexpr std::array kStates = {Cores::share_cache, Cores::apart, Cores::unknown};

// The lower quartile: other work only ever makes a machine slower.
double quartile(std::vector<double> values) {
    const auto at = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 4);
    std::nth_element(values.begin(), at, values.end());
    return *at;
}

}  // namespace

std::vector<Buckets> SweepRounds::grid(std::size_t cache_bytes, int least_depth) {
    std::vector<Buckets> all;
    for (int depth = least_depth; depth <= 4; ++depth) {
        for (std::size_t mib = 1; mib <= 128; mib *= 2) {
            const std::size_t bytes = mib << 20;
            all.push_back({bytes, depth, true});
            if (bytes * static_cast<std::size_t>(depth) <= cache_bytes / 2)
                all.push_back({bytes, depth, false});
        }
    }
    return all;
}

void SweepRounds::add(std::size_t index, Cores before, Cores after, const SweepSample& sample) {
    if (before == after) {
        seen_[index][static_cast<std::size_t>(before)].push_back(sample);
    } else {
        ++moved_;
    }
}

std::size_t SweepRounds::wanted(Cores cores) const {
    std::size_t sum = 0;
    for (std::size_t i = 0; i < size(); ++i) sum += kEnough - std::min(kEnough, of(i, cores).size());
    return sum;
}

Cores SweepRounds::cores() const {
    return *std::min_element(kStates.begin(), kStates.end(),
                             [&](Cores a, Cores b) { return wanted(a) < wanted(b); });
}

bool SweepRounds::done() const {
    return wanted(cores()) == 0;
}

double SweepRounds::quartile_of(std::size_t index, double SweepSample::*value) const {
    std::vector<double> values;
    for (const SweepSample& sample : of(index, cores())) values.push_back(sample.*value);
    return quartile(values);
}

// One for all candidates: a copy that was held up would make those beside it look fast.
double SweepRounds::light_ms() const {
    std::vector<double> values;
    for (std::size_t i = 0; i < size(); ++i)
        for (const SweepSample& sample : of(i, cores())) values.push_back(sample.light_ms);
    return quartile(values);
}

nlohmann::json SweepRounds::entry(std::size_t index, const Buckets& buckets) const {
    const double total_ms = quartile_of(index, &SweepSample::total_ms);
    const double push_ms = quartile_of(index, &SweepSample::push_ms);
    nlohmann::json json{{"bucket_bytes", buckets.bytes},
                        {"depth", buckets.depth},
                        {"past_cache", buckets.past_cache},
                        {"syncs", of(index, cores()).size()},
                        {"median_ms", total_ms},
                        {"speed_of_light_ratio", total_ms / light_ms()},
                        {"push_ms", push_ms},
                        {"push_ratio", push_ms / light_ms()}};
    if (predicted_ms_[index] > 0) json["predicted_push_ms"] = predicted_ms_[index];
    return json;
}

nlohmann::json SweepRounds::result() const {
    nlohmann::json result{{"sweep", nlohmann::json::array()}, {"sweep_cores", cores_name(cores())}};
    std::size_t all = moved_, counted = 0;
    for (std::size_t i = 0; i < size(); ++i) {
        for (const Samples& samples : seen_[i]) all += samples.size();
        if (of(i, cores()).empty()) continue;
        counted += of(i, cores()).size();
        if (i == 0) {
            result["sweep_chosen"] = entry(0, chosen_);
        } else {
            result["sweep"].push_back(entry(i, candidate(i)));
        }
    }
    result["sweep_dropped"] = all - counted;
    return result;
}

}  // namespace tandem::sync
