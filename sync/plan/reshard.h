// Plans which bytes travel from which trainer rank to which engine rank: from any source layout (Shard,
// _StridedShard, Replicate on an N-D mesh) to any engine layout (parts of tensors: column and row slices,
// fused qkv and gate_up, replicated norms, experts). Pure: no I/O, no device; every rank computes the same
// plan from the same input.
//
//  - Each element of each engine tensor is written by exactly one move: nothing is sent that is not kept.
//  - Where several trainer ranks hold the same elements, the work is divided among them, with equal bytes
//    as far as the layout allows; cuts never make runs smaller than min_split_bytes.
//  - Runs are as long as both layouts allow: rows that lie one behind the other on both sides are one row.
//
// A model repeats itself (layers, experts), so the plan stores each pattern of moves once and says where it
// occurs; moves are written out only for the rank that asks. Planning a trillion parameters from 256 ranks
// to 128 takes well under a second.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "sync/plan/layout.h"

namespace tandem::sync {

// `rows` runs of row_elements elements: run i from source_offset + i·source_stride of the rank's local tensor
// to target_offset + i·target_stride of the engine's tensor. In elements, since the copy may cast. One row
// has strides of row_elements.
struct Move {
    int source_rank = 0;
    int engine_rank = 0;
    int source_tensor = 0;  // in SourceLayout::tensors
    int engine_tensor = 0;  // in EngineLayout[engine_rank]
    std::int64_t rows = 0;
    std::int64_t row_elements = 0;
    std::int64_t source_offset = 0;
    std::int64_t source_stride = 0;
    std::int64_t target_offset = 0;
    std::int64_t target_stride = 0;
    friend bool operator==(const Move&, const Move&) = default;
};

struct ReshardOptions {
    std::size_t min_split_bytes = 64u << 10;
};

class ReshardPlan {
  public:
    // Throws InvalidArgument naming the tensor: a part of a tensor that the trainer does not have or that
    // leaves it, elements of an engine tensor that no part or several parts cover, elements that no rank
    // holds, a Partial placement, a cast that the copy does not know.
    static ReshardPlan make(SourceLayout source, EngineLayout engine, const ReshardOptions& options = {});

    const SourceLayout& source() const;
    const EngineLayout& engine() const;

    // In the order of the engine rank's tensors, each tensor's moves by target_offset.
    std::vector<Move> moves_to(int engine_rank) const;
    // The same order, by engine rank within a tensor's place.
    std::vector<Move> moves_from(int source_rank) const;

    std::uint64_t move_count() const;
    std::size_t pattern_count() const;
    std::uint64_t bytes() const;                           // of all engine ranks, in the engines' dtypes
    const std::vector<std::uint64_t>& bytes_from() const;  // [source rank], in the engines' dtypes
    const std::vector<std::uint64_t>& bytes_to() const;    // [engine rank]

  private:
    struct Impl;
    std::shared_ptr<const Impl> impl_;
};

}  // namespace tandem::sync
