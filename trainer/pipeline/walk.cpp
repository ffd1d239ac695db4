#include "trainer/pipeline/walk.h"

#include "trainer/pipeline/place.h"

namespace tandem::pipeline {

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
