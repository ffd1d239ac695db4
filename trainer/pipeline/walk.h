// Ranks that walk their lists together, an action each in turn, as far as they can.
#pragma once

#include <cstddef>
#include <vector>

#include "trainer/pipeline/schedule.h"

namespace tandem::pipeline {

// `ready(rank, action)`: whether the rank may do its next action now; `take(rank, action)` does it. Returns how many each has
// done: all of them, or none can go on. What one has done is seen by those after it in the same turn.
template <typename Ready, typename Take>
std::vector<std::size_t> walk(const std::vector<ActionList>& ranks, const Ready& ready, const Take& take) {
    std::vector<std::size_t> done(ranks.size());
    for (bool progress = true; progress;) {
        progress = false;
        for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
            if (done[rank] == ranks[rank].size()) continue;
            const Action& action = ranks[rank][done[rank]];
            if (!ready(rank, action)) continue;
            ++done[rank];
            take(rank, action);
            progress = true;
        }
    }
    return done;
}

// The lists with each overlap as its two parts, one after the other.
std::vector<ActionList> all_parts(const Schedule& schedule);
// Throws BadInput naming the first rank that `walk` left waiting.
void check_all_done(const std::vector<ActionList>& ranks, const std::vector<std::size_t>& done);

}  // namespace tandem::pipeline
