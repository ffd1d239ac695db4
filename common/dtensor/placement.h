// How one mesh axis holds a tensor: PyTorch's placements.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "common/comm/communicator.h"
#include "common/tensor/shape.h"

namespace tandem {

struct Placement {
    enum class Kind : std::uint8_t { replicate, shard, strided_shard, partial };
    Kind kind = Kind::replicate;
    int dim = 0;                                     // shard, strided_shard
    int split_factor = 1;                            // strided_shard
    comm::ReduceOp reduce_op = comm::ReduceOp::sum;  // partial

    bool is_shard() const { return kind == Kind::shard || kind == Kind::strided_shard; }
    friend bool operator==(const Placement&, const Placement&) = default;
};

inline Placement Replicate() { return {}; }
inline Placement Shard(int dim) { return {Placement::Kind::shard, dim, 1, comm::ReduceOp::sum}; }
inline Placement StridedShard(int dim, int split_factor) {
    return {Placement::Kind::strided_shard, dim, split_factor, comm::ReduceOp::sum};
}
inline Placement Partial(comm::ReduceOp op = comm::ReduceOp::sum) { return {Placement::Kind::partial, 0, 1, op}; }

using Placements = std::vector<Placement>;
std::string to_string(const Placement& placement);    // "S(0)", "SS(0, 2)", "R", "P(sum)"
std::string to_string(const Placements& placements);  // "[S(0), R]"

// The torch.chunk rule: n elements over k ranks; {size, offset} of rank r. full = ceil(n / k); trailing ranks may be
// short or empty, and an empty one has offset n.
struct ShardRange {
    std::int64_t size = 0;
    std::int64_t offset = 0;
};
ShardRange shard_range(std::int64_t n, std::int64_t k, std::int64_t r);
// ceil(n / k): what rank 0 holds, and what every rank is padded to inside a collective.
std::int64_t padded_shard_size(std::int64_t n, std::int64_t k);

}  // namespace tandem
