// Where in the lists an action stands, for messages: "rank 1, action 7 (2F0): its input has not come".
#pragma once

#include <fmt/core.h>

#include "common/error.h"
#include "trainer/pipeline/schedule.h"

namespace tandem::pipeline {

struct Place {
    std::size_t rank, at;  // counted from 0
    const Action* action;

    // Throws BadInput naming the place unless `condition` holds.
    template <typename... Args>
    void demand(bool condition, fmt::format_string<Args...> format, Args&&... args) const {
        if (condition) return;
        throw BadInput(fmt::format("rank {}, action {} ({}): ", rank, at, to_string(*action)) +
                       fmt::format(format, std::forward<Args>(args)...));
    }

    // That the stage is the rank's, and the micro-batch, if it has one, the schedule's.
    void demand_own(const Action& part, const Schedule& schedule) const {
        demand(part.stage >= 0 && part.stage < schedule.stages(), "there are stages 0 to {}",
               schedule.stages() - 1);
        const int owner = schedule.rank_of_stage[static_cast<std::size_t>(part.stage)];
        demand(owner == static_cast<int>(rank), "stage {} is rank {}'s", part.stage, owner);
        demand(part.microbatch < schedule.microbatches, "there are micro-batches 0 to {}",
               schedule.microbatches - 1);
    }
};

}  // namespace tandem::pipeline
