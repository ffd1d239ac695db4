#include "sync/plan/reshard_pattern.h"

#include <algorithm>
#include <numeric>
#include <tuple>

namespace tandem::sync {
namespace {

struct Loop {
    std::int64_t size = 0;
    std::int64_t source = 0;
    std::int64_t target = 0;
};

// Elements [start, stop) along `dim` of a cell as its holder sends them: the run is a row, the longest other
// dim the rows, the rest is looped over.
std::vector<Move> moves_of(const Cell& cell, const Holder& holder, std::size_t dim, std::int64_t start,
                           std::int64_t stop) {
    Move move;
    move.source_rank = holder.rank;
    move.rows = move.row_elements = 1;
    move.source_offset = holder.offset;
    move.target_offset = cell.offset;
    std::vector<Loop> loops;
    for (std::size_t d = 0; d < cell.size.size(); ++d) {
        loops.push_back({cell.size[d], holder.stride[d], cell.stride[d]});
    }
    if (!loops.empty()) {
        move.source_offset += start * loops[dim].source;
        move.target_offset += start * loops[dim].target;
        loops[dim].size = stop - start;
    }
    std::erase_if(loops, [](const Loop& loop) { return loop.size == 1; });
    // the same for every holder, so that an occurrence has as many moves whoever sends it
    if (cell.has_run() && !loops.empty() && loops.back().source == 1 && loops.back().target == 1) {
        move.row_elements = loops.back().size;
        loops.pop_back();
    }
    move.source_stride = move.target_stride = move.row_elements;
    if (!loops.empty()) {
        const auto longest = std::max_element(loops.begin(), loops.end(),
                                              [](const Loop& a, const Loop& b) { return a.size < b.size; });
        move.rows = longest->size;
        move.source_stride = longest->source;
        move.target_stride = longest->target;
        loops.erase(longest);
    }
    std::vector<Move> moves{move};
    for (const Loop& loop : loops) {
        const std::size_t count = moves.size();
        for (std::int64_t i = 1; i < loop.size; ++i) {
            for (std::size_t m = 0; m < count; ++m) {
                Move copy = moves[m];
                copy.source_offset += i * loop.source;
                copy.target_offset += i * loop.target;
                moves.push_back(copy);
            }
        }
    }
    return moves;
}

// True when `next`, of the same rank, continues `move`: as part of its only row, or as further rows.
bool absorb(Move& move, const Move& next) {
    const std::int64_t source = next.source_offset - move.source_offset;
    const std::int64_t target = next.target_offset - move.target_offset;
    if (move.rows == 1 && next.rows == 1 && source == move.row_elements && target == move.row_elements) {
        move.row_elements += next.row_elements;
        move.source_stride = move.target_stride = move.row_elements;
        return true;
    }
    if (next.row_elements != move.row_elements || source < 0) return false;
    if (move.rows == 1 && next.rows == 1) {
        move.source_stride = source;
        move.target_stride = target;
    } else if (source != move.rows * move.source_stride || target != move.rows * move.target_stride ||
               (next.rows > 1 &&
                (next.source_stride != move.source_stride || next.target_stride != move.target_stride))) {
        return false;
    }
    move.rows += next.rows;
    return true;
}

}  // namespace

void Pattern::add(const Cell& cell, const Division& division) {
    const bool by_turns = !division.counts.empty();
    if (by_turns) turns_.emplace_back(division.counts);
    for (std::size_t piece = 0; piece < division.pieces(); ++piece) {
        const auto append = [&](std::size_t holder) {
            for (const Move& move : moves_of(cell, cell.holders[holder], division.dim, division.bounds[piece],
                                             division.bounds[piece + 1])) {
                Entry entry;
                entry.move = move;
                if (by_turns) {
                    entry.turns = static_cast<std::int32_t>(turns_.size()) - 1;
                    entry.piece = static_cast<std::uint32_t>(piece);
                    entry.pieces = static_cast<std::uint32_t>(division.pieces());
                    entry.holder = static_cast<std::uint32_t>(holder);
                    if (holder == 0) ++taken_in_turns_;
                }
                entries_.push_back(entry);
            }
        };
        if (!by_turns) append(division.holders[piece]);
        for (std::size_t holder = 0; by_turns && holder < cell.holders.size(); ++holder) append(holder);
    }
}

void Pattern::finish() {
    std::vector<Cell>().swap(cells_);
    const auto by_rank = [](const Entry& a, const Entry& b) {
        return std::tie(a.move.source_rank, a.turns, a.piece, a.move.target_offset) <
               std::tie(b.move.source_rank, b.turns, b.piece, b.move.target_offset);
    };
    const auto by_target = [](const Entry& a, const Entry& b) {
        return std::tie(a.move.target_offset, a.move.source_rank) <
               std::tie(b.move.target_offset, b.move.source_rank);
    };
    std::sort(entries_.begin(), entries_.end(), by_rank);
    std::vector<Entry> merged;
    for (const Entry& entry : entries_) {
        const bool always = entry.turns < 0 && !merged.empty() && merged.back().turns < 0 &&
                            merged.back().move.source_rank == entry.move.source_rank;
        if (!always || !absorb(merged.back().move, entry.move)) merged.push_back(entry);
    }
    entries_ = std::move(merged);
    std::sort(entries_.begin(), entries_.end(), by_target);
    rank_order_.resize(entries_.size());
    std::iota(rank_order_.begin(), rank_order_.end(), 0u);
    std::stable_sort(rank_order_.begin(), rank_order_.end(), [&](std::uint32_t a, std::uint32_t b) {
        return entries_[a].move.source_rank < entries_[b].move.source_rank;
    });
}

bool Pattern::sent(const Entry& entry, std::uint64_t occurrence) const {
    if (entry.turns < 0) return true;
    const std::uint64_t unit = occurrence * entry.pieces + entry.piece;
    return turns_[static_cast<std::size_t>(entry.turns)].holder(unit) == entry.holder;
}

void Pattern::expand(const Move& base, std::uint64_t occurrence, int source_rank,
                     std::vector<Move>& out) const {
    const auto append = [&](const Entry& entry) {
        if (!sent(entry, occurrence)) return;
        Move& move = out.emplace_back(entry.move);
        move.engine_rank = base.engine_rank;
        move.source_tensor = base.source_tensor;
        move.engine_tensor = base.engine_tensor;
        move.target_offset += base.target_offset;
    };
    if (source_rank < 0) {
        for (const Entry& entry : entries_) append(entry);
        return;
    }
    auto at = std::lower_bound(
        rank_order_.begin(), rank_order_.end(), source_rank,
        [&](std::uint32_t entry, int rank) { return entries_[entry].move.source_rank < rank; });
    for (; at != rank_order_.end() && entries_[*at].move.source_rank == source_rank; ++at) {
        append(entries_[*at]);
    }
}

std::uint64_t Pattern::move_count() const {
    const auto always =
        std::count_if(entries_.begin(), entries_.end(), [](const Entry& entry) { return entry.turns < 0; });
    return occurrences * (static_cast<std::uint64_t>(always) + taken_in_turns_);
}

}  // namespace tandem::sync
