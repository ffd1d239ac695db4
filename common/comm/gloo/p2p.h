// A batch of sends and receives. Each message is announced with its size, which the receiver checks before it
// lets the bytes come.
#pragma once

#include <vector>

#include "common/comm/communicator.h"
#include "common/comm/gloo/group.h"

namespace tandem::comm::gloo {

void p2p(const Group& group, const std::vector<P2POp>& ops);

}  // namespace tandem::comm::gloo
