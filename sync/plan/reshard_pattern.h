// The moves of one geometry: a part's box of a source tensor of one layout, placed with one set of strides.
// Written once, however many tensors, experts and engine ranks have it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "sync/plan/reshard.h"
#include "sync/plan/reshard_share.h"

namespace tandem::sync {

class Pattern {
  public:
    explicit Pattern(std::vector<Cell> cells) : cells_(std::move(cells)) {}
    const std::vector<Cell>& cells() const { return cells_; }
    std::uint64_t occurrences = 0;

    // Every cell in any order, then finish, which forgets the cells.
    void add(const Cell& cell, const Division& division);
    void finish();

    // Appends the moves of one occurrence, all (source_rank < 0) or one rank's, by target_offset. `base`
    // gives the ranks' and tensors' fields, its target_offset is where the part begins.
    void expand(const Move& base, std::uint64_t occurrence, int source_rank, std::vector<Move>& out) const;
    std::uint64_t move_count() const;  // of all occurrences

  private:
    // A move of one occurrence, sent always (turns < 0) or when the turn is its holder's.
    struct Entry {
        Move move;
        std::int32_t turns = -1;
        std::uint32_t piece = 0;
        std::uint32_t pieces = 1;
        std::uint32_t holder = 0;
    };
    bool sent(const Entry& entry, std::uint64_t occurrence) const;

    std::vector<Cell> cells_;
    std::vector<Entry> entries_;             // by target_offset, then source rank
    std::vector<std::uint32_t> rank_order_;  // entries by source rank, then as above
    std::vector<Turns> turns_;
    std::uint64_t taken_in_turns_ = 0;  // moves of one occurrence that turns decide
};

}  // namespace tandem::sync
