#include "common/dtensor/layout.h"

#include <algorithm>
#include <cstddef>

#include "common/error.h"

namespace tandem {
namespace {

// `cuts` index into what `runs` hold, counted in their order; both become one list of global indices.
std::vector<Run> subset(const std::vector<Run>& runs, const std::vector<Run>& cuts) {
    std::vector<Run> result;
    for (const auto& [cut_start, cut_stop] : cuts) {
        std::int64_t before = 0;
        for (const auto& [start, stop] : runs) {
            const std::int64_t from = std::max(cut_start, before);
            const std::int64_t to = std::min(cut_stop, before + stop - start);
            const std::int64_t global = start + from - before;
            if (from < to && !result.empty() && result.back().second == global) {
                result.back().second = global + to - from;
            } else if (from < to) {
                result.emplace_back(global, global + to - from);
            }
            before += stop - start;
        }
    }
    return result;
}

}  // namespace

LocalLayout local_layout(const Shape& global_shape, const std::vector<int>& mesh_sizes,
                         const Placements& placements, const std::vector<int>& coordinates) {
    const Placements checked = checked_placements(placements, static_cast<int>(mesh_sizes.size()),
                                                  static_cast<int>(global_shape.size()));
    require(coordinates.size() == mesh_sizes.size(), "{} coordinates on a mesh with {} axes",
            coordinates.size(), mesh_sizes.size());
    LocalLayout layout;
    layout.shape = global_shape;
    for (const std::int64_t n : global_shape) {
        require(n >= 0, [&] { return fmt::format("negative dim in shape {}", to_string(global_shape)); });
        layout.runs.push_back(axis_runs(Replicate(), n, 1, 0));
    }
    for (std::size_t axis = 0; axis < checked.size(); ++axis) {
        require(coordinates[axis] >= 0 && coordinates[axis] < mesh_sizes[axis],
                "coordinate {} on a mesh axis of size {}", coordinates[axis], mesh_sizes[axis]);
        if (!checked[axis].is_shard()) continue;
        const auto dim = static_cast<std::size_t>(checked[axis].dim);
        const auto cuts = axis_runs(checked[axis], layout.shape[dim], mesh_sizes[axis], coordinates[axis]);
        layout.runs[dim] = subset(layout.runs[dim], cuts);
        layout.shape[dim] = total_size(cuts);
    }
    for (std::size_t dim = 0; dim < global_shape.size(); ++dim) {
        layout.offsets.push_back(layout.runs[dim].empty() ? global_shape[dim]
                                                          : layout.runs[dim].front().first);
    }
    return layout;
}

Shape local_shape(const Shape& global_shape, const std::vector<int>& mesh_sizes, const Placements& placements,
                  const std::vector<int>& coordinates) {
    Shape shape = global_shape;
    for (std::size_t axis = 0; axis < placements.size(); ++axis) {
        if (!placements[axis].is_shard()) continue;
        std::int64_t& size = shape[static_cast<std::size_t>(placements[axis].dim)];
        size = axis_numel(placements[axis], size, mesh_sizes[axis], coordinates[axis]);
    }
    return shape;
}

}  // namespace tandem
