#include "trainer/pipeline/walk.h"

#include <algorithm>

#include "trainer/pipeline/place.h"

namespace tandem::pipeline {

std::vector<std::vector<std::size_t>> neighbours_of(const std::vector<int>& rank_of_stage,
                                                    std::size_t ranks) {
    std::vector<std::vector<std::size_t>> neighbours(ranks);
    for (std::size_t stage = 1; stage < rank_of_stage.size(); ++stage) {
        const auto one = static_cast<std::size_t>(rank_of_stage[stage - 1]);
        const auto other = static_cast<std::size_t>(rank_of_stage[stage]);
        neighbours[one].push_back(other);
        neighbours[other].push_back(one);
    }
    for (std::vector<std::size_t>& list : neighbours) {
        std::sort(list.begin(), list.end());
        list.erase(std::unique(list.begin(), list.end()), list.end());
    }
    return neighbours;
}

std::vector<ActionList> all_parts(const Schedule& schedule) {
    std::vector<ActionList> ranks(schedule.ranks.size());
    for (std::size_t rank = 0; rank < ranks.size(); ++rank)
        for (const Action& action : schedule.ranks[rank])
            for (const Action& part : parts_of(action)) ranks[rank].push_back(part);
    return ranks;
}

void check_all_done(const std::vector<ActionList>& ranks, const std::vector<std::size_t>& done) {
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
        if (done[rank] == ranks[rank].size()) continue;
        Place{rank, done[rank], &ranks[rank][done[rank]]}.demand(
            false, "it waits forever for another stage: the ranks' lists wait for one another");
    }
}

}  // namespace tandem::pipeline
