// Ranks that walk their lists together, an action each in turn, as far as they can.
#pragma once

#include <cstddef>
#include <set>
#include <vector>

#include "trainer/pipeline/schedule.h"

namespace tandem::pipeline {

// [rank]: those that have a stage before or after one of its own.
std::vector<std::vector<std::size_t>> neighbours_of(const std::vector<int>& rank_of_stage, std::size_t ranks);

// `ready(rank, action)`: whether the rank may do its next action now, which only itself and its neighbours can change;
// `take(rank, action)` does it. Returns how many each has done: all of them, or none can go on. What one has done is seen by those
// after it in the same turn.
template <typename Ready, typename Take>
std::vector<std::size_t> walk(const std::vector<ActionList>& ranks, const std::vector<int>& rank_of_stage,
                              const Ready& ready, const Take& take) {
    const auto neighbours = neighbours_of(rank_of_stage, ranks.size());
    std::vector<std::size_t> done(ranks.size());
    std::set<std::size_t> awake;  // the others wait for a neighbour, or have done all
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) awake.insert(awake.end(), rank);
    while (!awake.empty()) {
        for (auto at = awake.begin(); at != awake.end();) {
            const std::size_t rank = *at;
            if (done[rank] == ranks[rank].size() || !ready(rank, ranks[rank][done[rank]])) {
                at = awake.erase(at);
                continue;
            }
            take(rank, ranks[rank][done[rank]++]);
            awake.insert(neighbours[rank].begin(), neighbours[rank].end());
            ++at;
        }
    }
    return done;
}

// The lists with each overlap as its two parts, one after the other.
std::vector<ActionList> all_parts(const Schedule& schedule);
// Throws BadInput naming the first rank that `walk` left waiting.
void check_all_done(const std::vector<ActionList>& ranks, const std::vector<std::size_t>& done);

}  // namespace tandem::pipeline
