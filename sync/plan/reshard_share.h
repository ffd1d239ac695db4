// Shares the work of sending a cell among the ranks that hold it.
//
// A pattern occurs many times (in every layer, for every expert), so its cells are divided once for all
// occurrences: either each occurrence is cut in the same way, a piece a holder, or, where pieces would
// become too small, holders take turns, so many occurrences each. Both follow what every rank sends
// elsewhere, so that ranks that hold less there send more here.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "sync/plan/reshard_cells.h"

namespace tandem::sync {

// Takes turns: unit u of counts.sum() belongs to one of the holders, each has as many units as counts
// say, and neighbouring units go to different holders as far as that allows.
class Turns {
  public:
    explicit Turns(const std::vector<std::uint64_t>& counts);
    std::size_t holder(std::uint64_t unit) const;
    std::uint64_t units() const { return ends_.back(); }

  private:
    std::vector<std::uint64_t> ends_;  // [holder]: the sum of the counts up to and with it
    std::uint64_t step_ = 1;
};

// A cell is cut along `dim` at `bounds` (first 0, last the dim's size). Piece j belongs to holders[j], in
// every occurrence; or, where `counts` are not empty, piece j of occurrence i is unit i·pieces + j of Turns.
struct Division {
    std::size_t dim = 0;
    std::vector<std::int64_t> bounds;
    std::vector<std::size_t> holders;   // indices in Cell::holders
    std::vector<std::uint64_t> counts;  // [index in Cell::holders]
    std::size_t pieces() const { return bounds.size() - 1; }
};

// A cell of a pattern, as often as the pattern occurs.
struct SharedCell {
    const Cell* cell = nullptr;
    std::uint64_t occurrences = 0;
    std::size_t element_bytes = 0;  // as sent
};

// Divides all cells so that the ranks' bytes come out as equal as who holds what allows, and adds them to
// `loads` ([rank]). Result in the order of `cells`.
std::vector<Division> divide_all(const std::vector<SharedCell>& cells, std::size_t min_split_bytes,
                                 std::span<std::uint64_t> loads);

}  // namespace tandem::sync
