// Checks of a call's arguments that hold on every backend. Each throws InvalidArgument, naming the group,
// before anything is queued: the group goes on.
#pragma once

#include <chrono>
#include <span>
#include <string>
#include <vector>

#include "common/comm/communicator.h"

namespace tandem::comm {

void check_all_gather(const Communicator& comm, std::span<const GatherItem> items);
void check_reduce_scatter(const Communicator& comm, std::span<const ReduceScatterItem> items);
void check_all_reduce(const Communicator& comm, Span inout, DType dtype, ReduceOp op);
void check_broadcast(const Communicator& comm, int root);
void check_all_to_all(const Communicator& comm, const AllToAllItem& item);
void check_p2p(const Communicator& comm, std::span<const P2POp> ops);
// `self` is the caller's global rank.
void check_split(const Communicator& comm, int self, const std::vector<int>& ranks, const std::string& name);
void check_timeout(std::chrono::milliseconds timeout);

}  // namespace tandem::comm
