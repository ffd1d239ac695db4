// The collectives themselves, run on the calling thread. Arguments are checked by the communicator before.
// Every rank sends straight to every other; reductions happen here, in rank order, since Gloo's own would
// not.
#pragma once

#include <vector>

#include "common/comm/communicator.h"
#include "common/comm/gloo/group.h"

namespace tandem::comm::gloo {

void all_gather(const Group& group, const std::vector<GatherItem>& items);
void reduce_scatter(const Group& group, const std::vector<ReduceScatterItem>& items, ReduceOp op);
void all_reduce(const Group& group, Span inout, DType dtype, ReduceOp op);
void broadcast(const Group& group, Span memory, int root);
void all_to_all(const Group& group, const AllToAllItem& item);
void barrier(const Group& group);

}  // namespace tandem::comm::gloo
