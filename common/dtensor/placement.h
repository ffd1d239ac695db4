// How one mesh axis holds a tensor: PyTorch's placements, and the rule by which a shard is cut.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
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
    bool is_shard(int of_dim) const { return is_shard() && dim == of_dim; }
    bool is_replicate() const { return kind == Kind::replicate; }
    bool is_partial() const { return kind == Kind::partial; }
    friend bool operator==(const Placement&, const Placement&) = default;
};

inline Placement Replicate() {
    return {};
}
inline Placement Shard(int dim) {
    return {Placement::Kind::shard, dim, 1, comm::ReduceOp::sum};
}
// Cut into split_factor chunks, each of them over the axis; a rank holds its piece of every chunk, in order.
// This is what FSDP makes of a dim that tensor parallelism, further in, has cut already: split_factor is TP's
// size.
inline Placement StridedShard(int dim, int split_factor) {
    return {Placement::Kind::strided_shard, dim, split_factor, comm::ReduceOp::sum};
}
// Every rank holds a term; the tensor is their reduction.
inline Placement Partial(comm::ReduceOp op = comm::ReduceOp::sum) {
    return {Placement::Kind::partial, 0, 1, op};
}

using Placements = std::vector<Placement>;
std::string to_string(const Placement& placement);    // "S(0)", "SS(0, 2)", "R", "P(sum)"
std::string to_string(const Placements& placements);  // "[S(0), R]"
// Reads what to_string writes, brackets and spaces optional: "S(0),SS(0,2),R,P". Throws BadInput
// naming the word.
Placements parse_placements(std::string_view text);

// One placement for each of mesh_ndim axes, dims of a tensor of `ndim` dims. Negative dims count from the end
// and come back positive. Throws InvalidArgument that says what would be right.
Placements checked_placements(Placements placements, int mesh_ndim, int ndim);

// The torch.chunk rule: n elements over k ranks; {size, offset} of rank r. full = ceil(n / k); trailing ranks
// may be short or empty, and an empty one has offset n.
struct ShardRange {
    std::int64_t size = 0;
    std::int64_t offset = 0;
};
ShardRange shard_range(std::int64_t n, std::int64_t k, std::int64_t r);
// ceil(n / k): what rank 0 holds, and what every rank is padded to inside a collective.
std::int64_t padded_shard_size(std::int64_t n, std::int64_t k);

// A run of indices [start, stop).
using Run = std::pair<std::int64_t, std::int64_t>;

// The elements of n that rank r of k holds, as ascending runs, none empty and none touching the next:
// nothing, one run, or several with a strided shard. Replicate and Partial hold [0, n).
std::vector<Run> axis_runs(const Placement& placement, std::int64_t n, std::int64_t k, std::int64_t r);
// How many those are.
std::int64_t axis_numel(const Placement& placement, std::int64_t n, std::int64_t k, std::int64_t r);
std::int64_t total_size(const std::vector<Run>& runs);
// The index at a position when the indices of `runs` are counted 0, 1, …: of an element of a shard, in the whole tensor.
std::int64_t index_at(const std::vector<Run>& runs, std::int64_t position);
// Indices in both lists of ascending runs.
std::vector<Run> common_runs(const std::vector<Run>& a, const std::vector<Run>& b);
// The positions of the indices of `part`, all of them in `runs`, when the indices of `runs` are counted 0, 1,
// ….
std::vector<Run> positions_in(const std::vector<Run>& runs, const std::vector<Run>& part);

}  // namespace tandem
