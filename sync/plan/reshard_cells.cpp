#include "sync/plan/reshard_cells.h"

#include <algorithm>
#include <numeric>

#include "common/error.h"

namespace tandem::sync {
namespace {

// Indices [start, stop) of one dim, which lie from `local` on in a rank's local tensor.
struct Stretch {
    std::int64_t start = 0;
    std::int64_t stop = 0;
    std::int64_t local = 0;
};

// The part of a box that a rank holds: the product of its dims' stretches.
struct Share {
    int rank = 0;
    std::vector<std::vector<Stretch>> dims;
    Shape stride;  // of the local tensor
};

std::vector<Stretch> stretches_in(const std::vector<Run>& runs, std::int64_t from, std::int64_t to) {
    std::vector<Stretch> result;
    std::int64_t before = 0;
    for (const auto& [start, stop] : runs) {
        const std::int64_t low = std::max(start, from);
        const std::int64_t high = std::min(stop, to);
        if (low < high) result.push_back({low, high, before + low - start});
        before += stop - start;
    }
    return result;
}

std::vector<Share> shares_of(const std::vector<RankPiece>& pieces, const TargetBox& box) {
    std::vector<Share> shares;
    for (const RankPiece& piece : pieces) {
        Share share{piece.rank, {}, {}};
        for (std::size_t d = 0; d < box.size.size(); ++d) {
            auto found = stretches_in(piece.layout.runs[d], box.start[d], box.start[d] + box.size[d]);
            if (found.empty()) break;
            share.dims.push_back(std::move(found));
        }
        if (share.dims.size() < box.size.size()) continue;
        share.stride = row_major(piece.layout.shape);
        shares.push_back(std::move(share));
    }
    return shares;
}

// All boundaries of all shares: between two of them the same ranks hold everything.
std::vector<std::vector<std::int64_t>> boundaries(const std::vector<Share>& shares, std::size_t dims) {
    std::vector<std::vector<std::int64_t>> result(dims);
    for (std::size_t d = 0; d < dims; ++d) {
        for (const Share& share : shares) {
            for (const Stretch& stretch : share.dims[d]) {
                result[d].push_back(stretch.start);
                result[d].push_back(stretch.stop);
            }
        }
        std::sort(result[d].begin(), result[d].end());
        result[d].erase(std::unique(result[d].begin(), result[d].end()), result[d].end());
    }
    return result;
}

// Steps through all index tuples below `counts`, the last dim fastest; false after the last one.
bool advance(std::vector<std::size_t>& index, const std::vector<std::size_t>& counts) {
    for (std::size_t d = index.size(); d-- > 0;) {
        if (++index[d] < counts[d]) return true;
        index[d] = 0;
    }
    return false;
}

bool one_behind_the_other(const Shape& stride, std::size_t outer, std::size_t inner,
                          std::int64_t inner_size) {
    return stride[outer] == stride[inner] * inner_size;
}

void coalesce(Cell& cell) {
    std::vector<std::size_t> order(cell.size.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::erase_if(order, [&](std::size_t d) { return cell.size[d] == 1; });
    std::stable_sort(order.begin(), order.end(),
                     [&](std::size_t a, std::size_t b) { return cell.stride[a] > cell.stride[b]; });
    // From the innermost: kept[i] is the dim whose steps a merged dim takes; sizes multiply.
    std::vector<std::size_t> kept;
    Shape size;
    for (std::size_t i = order.size(); i-- > 0;) {
        const std::size_t d = order[i];
        const bool merge = !kept.empty() && one_behind_the_other(cell.stride, d, kept.back(), size.back()) &&
                           std::all_of(cell.holders.begin(), cell.holders.end(), [&](const Holder& holder) {
                               return one_behind_the_other(holder.stride, d, kept.back(), size.back());
                           });
        if (merge) {
            size.back() *= cell.size[d];
        } else {
            kept.push_back(d);
            size.push_back(cell.size[d]);
        }
    }
    std::reverse(kept.begin(), kept.end());
    std::reverse(size.begin(), size.end());
    const auto pick = [&](Shape& stride) {
        Shape picked;
        for (const std::size_t d : kept) picked.push_back(stride[d]);
        stride = std::move(picked);
    };
    cell.size = std::move(size);
    pick(cell.stride);
    for (Holder& holder : cell.holders) pick(holder.stride);
}

// A rank and where it stands in one of its tensor's groups.
struct Seat {
    int rank = 0;
    std::size_t group = 0;     // in Group's list
    std::size_t position = 0;  // in the mesh, row-major
};

struct Group {
    const std::vector<int>& mesh_sizes;
    Placements placements;
};

Group add_group(const SourceLayout& source, const SourceTensor& tensor, int index, std::size_t group_number,
                std::vector<Seat>& seats) {
    enforce(index >= 0 && index < static_cast<int>(source.groups.size()),
            "tensor '{}' lies on group {} of {}", tensor.name, index, source.groups.size());
    const SourceGroup& group = source.groups[static_cast<std::size_t>(index)];
    std::size_t size = 1;
    for (const int n : group.mesh_sizes) {
        enforce(n >= 1, "tensor '{}', group {}: a mesh axis of size {}", tensor.name, index, n);
        size *= static_cast<std::size_t>(n);
    }
    enforce(size == group.ranks.size(), "tensor '{}', group {}: {} ranks on a mesh for {}", tensor.name,
            index, group.ranks.size(), size);
    Placements placements;
    try {
        placements = checked_placements(group.placements, static_cast<int>(group.mesh_sizes.size()),
                                        static_cast<int>(tensor.shape.size()));
    } catch (const InvalidArgument& error) {
        throw BadInput(fmt::format("tensor '{}': {}", tensor.name, error.what()));
    }
    for (const Placement& placement : placements) {
        enforce(!placement.is_partial(), "tensor '{}' is a partial sum ({}): reduce it before it is sent",
                tensor.name, to_string(placements));
    }
    for (std::size_t i = 0; i < group.ranks.size(); ++i) {
        const int rank = group.ranks[i];
        enforce(rank >= 0 && rank < source.world_size, "tensor '{}', group {}: rank {} of {}", tensor.name,
                index, rank, source.world_size);
        seats.push_back({rank, group_number, i});
    }
    return {group.mesh_sizes, std::move(placements)};
}

std::vector<int> coordinates_of(std::size_t position, const std::vector<int>& sizes) {
    std::vector<int> coordinates(sizes.size());
    for (std::size_t axis = sizes.size(); axis-- > 0;) {
        const auto size = static_cast<std::size_t>(sizes[axis]);
        coordinates[axis] = static_cast<int>(position % size);
        position /= size;
    }
    return coordinates;
}

}  // namespace

Shape row_major(const Shape& shape) {
    Shape stride(shape.size(), 1);
    for (std::size_t d = shape.size(); d-- > 1;) stride[d - 1] = stride[d] * shape[d];
    return stride;
}

bool Cell::has_run() const {
    return !size.empty() && stride.back() == 1 &&
           std::all_of(holders.begin(), holders.end(),
                       [](const Holder& holder) { return holder.stride.back() == 1; });
}

std::vector<RankPiece> rank_pieces(const SourceLayout& source, const SourceTensor& tensor) {
    enforce(!tensor.groups.empty(), "no rank holds tensor '{}': it lies on no group", tensor.name);
    std::vector<Group> groups;
    std::vector<Seat> seats;
    for (const int index : tensor.groups)
        groups.push_back(add_group(source, tensor, index, groups.size(), seats));
    std::sort(seats.begin(), seats.end(), [](const Seat& a, const Seat& b) { return a.rank < b.rank; });
    std::vector<RankPiece> pieces;
    pieces.reserve(seats.size());
    for (const Seat& seat : seats) {
        enforce(pieces.empty() || pieces.back().rank != seat.rank,
                "tensor '{}': rank {} is twice in its groups", tensor.name, seat.rank);
        const Group& group = groups[seat.group];
        pieces.push_back({seat.rank, local_layout(tensor.shape, group.mesh_sizes, group.placements,
                                                  coordinates_of(seat.position, group.mesh_sizes))});
    }
    return pieces;
}

std::vector<Cell> cells_of(const std::vector<RankPiece>& pieces, const TargetBox& box) {
    const std::size_t dims = box.size.size();
    if (numel(box.size) == 0) return {};
    const std::vector<Share> shares = shares_of(pieces, box);
    const auto cuts = boundaries(shares, dims);
    std::vector<std::size_t> counts;
    std::size_t total = 1;
    for (const auto& cut : cuts) {
        counts.push_back(cut.size() - 1);
        total *= counts.back();
    }
    std::vector<Cell> cells(total);
    std::vector<std::size_t> index(dims, 0);
    for (Cell& cell : cells) {
        for (std::size_t d = 0; d < dims; ++d) {
            cell.size.push_back(cuts[d][index[d] + 1] - cuts[d][index[d]]);
            cell.offset += (cuts[d][index[d]] - box.start[d]) * box.stride[d];
        }
        cell.stride = box.stride;
        advance(index, counts);
    }
    for (const Share& share : shares) {
        // In each dim the grid's indices that the rank has, and where they lie locally.
        std::vector<std::vector<std::pair<std::size_t, std::int64_t>>> has(dims);
        std::vector<std::size_t> has_counts;
        for (std::size_t d = 0; d < dims; ++d) {
            for (const Stretch& stretch : share.dims[d]) {
                auto at = std::lower_bound(cuts[d].begin(), cuts[d].end(), stretch.start);
                for (; *at < stretch.stop; ++at) {
                    has[d].emplace_back(static_cast<std::size_t>(at - cuts[d].begin()),
                                        stretch.local + *at - stretch.start);
                }
            }
            has_counts.push_back(has[d].size());
        }
        std::vector<std::size_t> which(dims, 0);
        do {
            std::size_t cell = 0;
            Holder holder{share.rank, 0, share.stride};
            for (std::size_t d = 0; d < dims; ++d) {
                const auto& [grid, local] = has[d][which[d]];
                cell = cell * counts[d] + grid;
                holder.offset += local * share.stride[d];
            }
            cells[cell].holders.push_back(std::move(holder));
        } while (advance(which, has_counts));
    }
    for (Cell& cell : cells) coalesce(cell);
    return cells;
}

}  // namespace tandem::sync
