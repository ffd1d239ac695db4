// A box of a source tensor cut into cells, each of which some ranks hold whole.
#pragma once

#include <cstdint>
#include <vector>

#include "sync/plan/layout.h"

namespace tandem::sync {

// A box of a tensor and where its elements go: element (i, j, …) to i·stride[0] + j·stride[1] + ….
struct TargetBox {
    Shape start;
    Shape size;
    Shape stride;
};

// A cell's place in a rank's local tensor: its first element, and the step of each of the cell's dims.
struct Holder {
    int rank = 0;
    std::int64_t offset = 0;
    Shape stride;
};

// The dims are not the tensor's any more: those of size 1 are gone, those that lie one behind the other in
// the target and in every holder's local tensor are one, and the largest target stride comes first.
struct Cell {
    Shape size;
    std::int64_t offset = 0;      // in the target, from the box's first element
    Shape stride;                 // in the target
    std::vector<Holder> holders;  // by rank

    std::int64_t elements() const { return numel(size); }
    // True when the last dim is a run: step 1 in the target and for every holder.
    bool has_run() const;
};

// One rank of a tensor's groups, with the part that it holds.
struct RankPiece {
    int rank = 0;
    LocalLayout layout;
};

// All ranks of all groups of `tensor`, by rank. Throws InvalidArgument naming it: no group, a group or rank
// that does not exist, a rank in two groups, a mesh that is not the group's, a Partial placement.
std::vector<RankPiece> rank_pieces(const SourceLayout& source, const SourceTensor& tensor);

// The cells of a box, which must lie in the tensor; none when it is empty.
std::vector<Cell> cells_of(const std::vector<RankPiece>& pieces, const TargetBox& box);

// The strides of a contiguous tensor, in elements.
Shape row_major(const Shape& shape);

}  // namespace tandem::sync
