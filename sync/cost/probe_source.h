// What calibration reads: the trainer's shards, as a push does.
#pragma once

#include <cstddef>
#include <vector>

#include "common/device/shared_arena.h"
#include "common/ops/batched_copy.h"
#include "common/tensor/dtype.h"

namespace tandem::sync {

class ProbeSource {
  public:
    // Of dtype `from`, read as `to`; borrowed. Where they are too few, memory of its own of so many bytes. Throws.
    ProbeSource(const std::vector<ConstSpan>& shards, DType from, DType to, std::size_t own_bytes);
    // The next part that makes `bytes` of the engine's dtype, itself at most kLeastShard; wraps around at the end.
    ops::CopyItem next(std::size_t bytes);

    // Smaller shards a cache would hold. A piece must fit into each.
    static constexpr std::size_t kLeastShard = std::size_t{4} << 20;

  private:
    const DType from_, to_;
    SharedArena own_;
    std::vector<ConstSpan> shards_;
    std::size_t shard_ = 0, position_ = 0;  // of what is read next, in it
};

}  // namespace tandem::sync
