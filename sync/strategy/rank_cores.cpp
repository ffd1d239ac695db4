#include "sync/strategy/rank_cores.h"

#include <algorithm>

#include "common/cores.h"
#include "common/identity/host_identity.h"
#include "sync/strategy/collectives.h"

namespace tandem::sync {

std::vector<int> cores_of_ranks(comm::Communicator& world) {
    const std::vector<int> cores = usable_cores();
    std::string mine = host_identity();
    for (const int core : cores) mine += " " + std::to_string(core);
    const std::vector<std::string> all = gather_texts(world, mine);
    const bool alike =
        std::all_of(all.begin(), all.end(), [&](const auto& one) { return one == all.front(); });
    if (!alike || cores.size() < 2 || all.size() % cores.size() != 0) return {};
    std::vector<int> result;
    for (std::size_t rank = 0; rank < all.size(); ++rank)
        result.push_back(cores[rank * cores.size() / all.size()]);
    return result;
}

}  // namespace tandem::sync
