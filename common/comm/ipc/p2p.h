// Point-to-point transfers: a batch advances all its sends and receives side by side, so no order of them can
// deadlock. Between two members, sends meet receives in the order of the calls.
#pragma once

#include <vector>

#include "common/comm/communicator.h"
#include "common/comm/ipc/group.h"

namespace tandem::comm::ipc {

void p2p(Group& group, const std::vector<P2POp>& ops);

}  // namespace tandem::comm::ipc
