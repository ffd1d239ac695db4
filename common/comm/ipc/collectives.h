// The collectives themselves, run on the calling thread. Arguments are checked by the communicator before.
#pragma once

#include <span>
#include <vector>

#include "common/comm/communicator.h"
#include "common/comm/ipc/exchange.h"
#include "common/comm/ipc/group.h"

namespace tandem::comm::ipc {

void all_gather(Group& group, Scratch& scratch, const std::vector<GatherItem>& items);
void reduce_scatter(Group& group, Scratch& scratch, const std::vector<ReduceScatterItem>& items, ReduceOp op);
void all_reduce(Group& group, Scratch& scratch, Span inout, DType dtype, ReduceOp op);
void broadcast(Group& group, Scratch& scratch, Span memory, int root);
void all_to_all(Group& group, Scratch& scratch, const AllToAllItem& item);
void barrier(Group& group, Scratch& scratch);

}  // namespace tandem::comm::ipc
