// How long a schedule takes on paper, and what it keeps in memory: transfers are free, a rank does one thing at a time, and an
// overlapped pair takes its forward's time and then its backward's.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "trainer/pipeline/schedule.h"

namespace tandem::pipeline {

// Of one stage and micro-batch, in any unit.
struct StageTimes {
    double forward = 1, input = 1, weight = 1, backward = 2;
};

struct Interval {
    Action action;  // F, I, W or B
    double start = 0, end = 0;
};

struct Timing {
    std::vector<std::vector<Interval>> ranks;
    double makespan = 0;
    double ideal = 0;       // what the busiest rank has to do
    double bubble = 0;      // makespan - ideal
    std::vector<int> peak;  // [rank]: most activations kept at once, each from its F to its B or W
};

// Of what ranks did, from when to when, in the order in which they did it.
Timing timing_of(std::vector<std::vector<Interval>> ranks);
// [stage]: the mean of what its actions took; 0 for those that it never ran, but B where there are I and W, and they where there
// is B, which each is taken to be half of.
std::vector<StageTimes> mean_times(const Timing& timing, int stages);

// `times`: [stage]. Throws BadInput where ranks wait for one another forever.
Timing simulate(const Schedule& compute, const std::vector<StageTimes>& times);
// With the default times.
Timing simulate(const Schedule& compute);

// [stage], from JSON: {"F": 3, "I": 4, "W": 2} for all stages, or an array with one such object a stage. B is I + W where it is not
// given; what the stage never runs may be missing. Throws ConfigError naming `file`, stage and key.
std::vector<StageTimes> read_times(std::string_view text, const std::string& file, const Schedule& compute);

}  // namespace tandem::pipeline
