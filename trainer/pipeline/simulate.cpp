#include "trainer/pipeline/simulate.h"

#include <algorithm>

#include "common/error.h"
#include "trainer/pipeline/transfers.h"
#include "trainer/pipeline/walk.h"

namespace tandem::pipeline {
namespace {

double time_of(ActionKind kind, const StageTimes& times) {
    switch (kind) {
        case ActionKind::forward:
            return times.forward;
        case ActionKind::backward_input:
            return times.input;
        case ActionKind::backward_weight:
            return times.weight;
        case ActionKind::full_backward:
            return times.backward;
        default:
            return 0;
    }
}

int peak_of(const std::vector<Interval>& intervals) {
    int kept = 0, peak = 0;
    for (const Interval& interval : intervals) {
        if (interval.action.kind == ActionKind::forward) peak = std::max(peak, ++kept);
        if (interval.action.kind == ActionKind::full_backward ||
            interval.action.kind == ActionKind::backward_weight)
            --kept;
    }
    return peak;
}

}  // namespace

Timing simulate(const Schedule& compute, const std::vector<StageTimes>& times) {
    require(times.size() == compute.rank_of_stage.size(), "times of {} stages for {}", times.size(),
            compute.stages());
    Timing timing;
    timing.ranks.resize(compute.ranks.size());
    std::vector<double> free_at(compute.ranks.size()), busy = free_at;
    Inputs inputs(compute.stages(), compute.microbatches);
    const std::vector<ActionList> parts = all_parts(compute);
    const auto run = [&](std::size_t rank, const Action& action) {
        const double start = std::max(free_at[rank], inputs.came(action));
        const double time = time_of(action.kind, times[static_cast<std::size_t>(action.stage)]);
        free_at[rank] = start + time;
        busy[rank] += time;
        inputs.finish(action, free_at[rank]);
        timing.ranks[rank].push_back({action, start, free_at[rank]});
    };
    const auto ready = [&](std::size_t, const Action& action) { return inputs.has(action); };
    check_all_done(parts, walk(parts, compute.rank_of_stage, ready, run));
    timing.makespan = *std::max_element(free_at.begin(), free_at.end());
    timing.ideal = *std::max_element(busy.begin(), busy.end());
    timing.bubble = timing.makespan - timing.ideal;
    for (const auto& intervals : timing.ranks) timing.peak.push_back(peak_of(intervals));
    return timing;
}

Timing simulate(const Schedule& compute) {
    return simulate(compute, std::vector<StageTimes>(compute.rank_of_stage.size()));
}

}  // namespace tandem::pipeline
