// The operations of a group on memory of the CPU, run on the calling thread. Arguments are checked by the communicator
// before. Every rank sends straight to every other; reductions happen here, in rank order, since Gloo's own would not.
#pragma once

#include <vector>

#include "common/comm/communicator.h"
#include "common/comm/gloo/group.h"
#include "common/comm/queued.h"

namespace tandem::comm::gloo {

class OnCpu final : public Operations {
  public:
    explicit OnCpu(const Group& group) : group_(group) {}  // borrowed
    void all_gather(const std::vector<GatherItem>& items) override;
    void reduce_scatter(const std::vector<ReduceScatterItem>& items, ReduceOp op) override;
    void all_reduce(Span inout, DType dtype, ReduceOp op) override;
    void broadcast(Span memory, int root) override;
    void all_to_all(const AllToAllItem& item) override;
    void p2p(const std::vector<P2POp>& ops) override;  // p2p.cpp
    void barrier() override;

  private:
    const Group& group_;
};

}  // namespace tandem::comm::gloo
