// `inspect schedule`: what every rank of a pipeline does, how long it takes on paper, and what it keeps.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "trainer/pipeline/simulate.h"

namespace tandem::inspect {

struct ScheduleRequest {
    std::string name = {};
    int ranks = 1, stages_per_rank = 1, microbatches = 1;
    std::string from_csv = {};    // a file instead of the four above; empty: none
    std::string times_file = {};  // empty: F = I = W = 1, B = 2
    int channel_capacity = 0;     // of the check (pipeline/check.h)
    bool lowered = false;         // show also what is not computing
};

struct ScheduleReport {
    std::string title;
    pipeline::Schedule lists;  // that are shown: compute actions, or all
    pipeline::Timing timing;
};

// Throws BadInput for what PyTorch refuses and for lists that cannot run, ConfigError for what the files hold.
ScheduleReport inspect_schedule(const ScheduleRequest& request);
nlohmann::ordered_json to_json(const ScheduleReport& report);
std::string to_text(const ScheduleReport& report);
std::string to_svg(const ScheduleReport& report);

}  // namespace tandem::inspect
