// Which core each rank fills staging on, so that the engine's thread on the same core loads it: what was written through a
// cache is read many times faster there than from a core that does not share it.
#pragma once

#include <vector>

#include "common/comm/communicator.h"

namespace tandem::sync {

// [rank] Collective; the same on every rank. Empty, for the system to place them: where a core would go without a rank or
// have more than others, and where ranks run on several hosts or may not use the same cores.
std::vector<int> cores_of_ranks(comm::Communicator& world);

}  // namespace tandem::sync
