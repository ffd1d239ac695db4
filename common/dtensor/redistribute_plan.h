// The conversions, with their mesh axes and their order, that turn one layout into another. Pure: no data, no
// communication; every rank plans for itself and all arrive at the same axes, placements and kinds.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "common/dtensor/placement.h"
#include "common/tensor/shape.h"

namespace tandem {

// PyTorch lets users move away from Partial, or leave it as it is on an axis, never make it; Replicate ->
// Partial(sum) exists for a library's own use.
enum class PartialTarget : std::uint8_t { refuse, allow };

struct RedistributeStep {
    enum class Kind : std::uint8_t {
        none,            // equal placements, or an axis of one rank
        all_gather,      // shard -> replicate
        all_to_all,      // shard -> another shard
        local_chunk,     // replicate -> shard
        all_reduce,      // partial -> replicate
        reduce_scatter,  // partial -> shard
        partition,       // replicate -> partial(sum): divides by the axis size
    };
    Kind kind = Kind::none;
    int axis = 0;
    Placement from;
    Placement to;
    Shape logical_shape;  // of the tensor that this axis cuts: what the axes outside of it leave this rank
    Shape local_before;   // this rank's piece
    Shape local_after;

    // Bytes that this rank receives from others: the padded slots of a gather or reduce-scatter, the real
    // blocks of an all-to-all, both halves of an all-reduce.
    std::int64_t bytes_received(int axis_size, int coordinate, std::int64_t element_bytes) const;
};
std::string_view to_string(RedistributeStep::Kind kind);

// One axis: one direct step. Several: from the innermost axis to the outermost, each straight to its target,
// or to Replicate first where the axes outside of it cut the target's dim differently now and then; after
// that, from the outermost to the innermost, what is left. `from` and `to` are checked_placements.
std::vector<RedistributeStep> plan_redistribute(const Shape& global_shape, const std::vector<int>& mesh_sizes,
                                                const std::vector<int>& coordinates, const Placements& from,
                                                const Placements& to,
                                                PartialTarget partial = PartialTarget::refuse);

// The placements of the gradient of redistribute(source -> …): the source's placements, Replicate where it
// was Partial.
Placements gradient_placements(const Placements& source);

}  // namespace tandem
