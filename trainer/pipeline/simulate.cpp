#include "trainer/pipeline/simulate.h"

#include <algorithm>
#include <map>
#include <utility>

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

Timing timing_of(std::vector<std::vector<Interval>> ranks) {
    Timing timing;
    timing.ranks = std::move(ranks);
    for (const std::vector<Interval>& intervals : timing.ranks) {
        double busy = 0;
        for (const Interval& interval : intervals) {
            busy += interval.end - interval.start;
            timing.makespan = std::max(timing.makespan, interval.end);
        }
        timing.ideal = std::max(timing.ideal, busy);
        timing.peak.push_back(peak_of(intervals));
    }
    timing.bubble = timing.makespan - timing.ideal;
    return timing;
}

std::vector<StageTimes> mean_times(const Timing& timing, int stages) {
    std::map<std::pair<int, ActionKind>, std::pair<double, int>> sums;
    for (const std::vector<Interval>& intervals : timing.ranks) {
        for (const Interval& interval : intervals) {
            auto& [sum, count] = sums[{interval.action.stage, interval.action.kind}];
            sum += interval.end - interval.start;
            ++count;
        }
    }
    std::vector<StageTimes> result;
    for (int stage = 0; stage < stages; ++stage) {
        const auto mean = [&](ActionKind kind) {
            const auto found = sums.find({stage, kind});
            return found == sums.end() ? 0 : found->second.first / found->second.second;
        };
        StageTimes times{mean(ActionKind::forward), mean(ActionKind::backward_input),
                         mean(ActionKind::backward_weight), mean(ActionKind::full_backward)};
        if (times.backward == 0) times.backward = times.input + times.weight;
        if (times.input == 0 && times.weight == 0) times.input = times.weight = times.backward / 2;
        result.push_back(times);
    }
    return result;
}

Timing simulate(const Schedule& compute, const std::vector<StageTimes>& times) {
    require(times.size() == compute.rank_of_stage.size(), "times of {} stages for {}", times.size(),
            compute.stages());
    std::vector<std::vector<Interval>> ranks(compute.ranks.size());
    std::vector<double> free_at(compute.ranks.size());
    Inputs inputs(compute.stages(), compute.microbatches);
    const std::vector<ActionList> parts = all_parts(compute);
    const auto run = [&](std::size_t rank, const Action& action) {
        const double start = std::max(free_at[rank], inputs.came(action));
        free_at[rank] = start + time_of(action.kind, times[static_cast<std::size_t>(action.stage)]);
        inputs.finish(action, free_at[rank]);
        ranks[rank].push_back({action, start, free_at[rank]});
    };
    const auto ready = [&](std::size_t, const Action& action) { return inputs.has(action); };
    check_all_done(parts, walk(parts, compute.rank_of_stage, ready, run));
    return timing_of(std::move(ranks));
}

Timing simulate(const Schedule& compute) {
    return simulate(compute, std::vector<StageTimes>(compute.rank_of_stage.size()));
}

}  // namespace tandem::pipeline
