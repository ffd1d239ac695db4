// Tensor parallelism inside a layer, after Megatron: the projections of a block are cut over the ranks of the tp axis, first
// by columns (outputs), then by rows (inputs), so that ranks meet twice a block: before it, where each needs all rows of the
// hidden states, and after it, where the sum of their terms is the block's output. With sequence parallelism the hidden states
// between the blocks are cut by rows (tokens): ranks gather before a block and reduce-scatter after it. The gradient goes the
// other way through the same two: that of all_rows is sum, that of sum is all_rows.
#pragma once

#include <cstdint>

#include "common/comm/communicator.h"
#include "common/device/stream.h"
#include "common/tensor/tensor.h"

namespace tandem::trainer {

// On a group of one rank nothing moves: both functions return what they got.
class TensorParallel {
  public:
    // `group` is the tp axis and must outlive this.
    TensorParallel(comm::Communicator& group, bool sequence_parallel)
        : group_(group), cuts_rows_(sequence_parallel && group.size() > 1) {}

    comm::Communicator& group() const { return group_; }
    int size() const { return group_.size(); }
    // True on the rank that adds what must be added once: a bias after rows, a term that every rank has whole.
    bool first() const { return group_.rank() == 0; }
    // Whether hidden states are cut by rows between the blocks, so that all_rows() moves them.
    bool cuts_rows() const { return cuts_rows_; }

    // Of `rows` rows of hidden states, those that each rank keeps between the blocks: all, or with sequence parallelism
    // ceil(rows / size). The last ones may then be padding, which nothing reads.
    std::int64_t kept_rows(std::int64_t rows) const;
    // [kept_rows, n] -> [rows, n]. Collective, in the stream's order.
    Tensor all_rows(Stream& stream, const Tensor& kept, std::int64_t rows) const;
    // The sum over the ranks of `terms` [rows, n] -> [kept_rows, n]; may be in the memory of `terms`. Collective, in the
    // stream's order.
    Tensor sum(Stream& stream, const Tensor& terms) const;
    // The pool in which peers read a tensor in place: for what is passed to the two above.
    MemoryPool& memory(const Stream& stream) const;

  private:
    comm::Communicator& group_;
    bool cuts_rows_;
};

}  // namespace tandem::trainer
