// Arithmetic of mesh axes over positions 0 … n-1 of a root grid; no names, no communication. An axis is a
// list of modes (size, stride), outermost first, as in CuTe layouts: one mode for a plain axis, several for a
// flattened one whose parts do not lie next to each other.
#pragma once

#include <span>
#include <vector>

namespace tandem {

struct AxisMode {
    int size = 1;
    int stride = 1;
    friend bool operator==(const AxisMode&, const AxisMode&) = default;
};

using AxisLayout = std::vector<AxisMode>;

// Row-major axes over a contiguous grid: the last axis has stride 1.
std::vector<AxisLayout> row_major(std::span<const int> sizes);

int axis_size(const AxisLayout& axis);
int axis_coordinate(const AxisLayout& axis, int position);
// Offset of coordinate 0, 1, …: where the axis leads from a position at which its coordinate is 0.
std::vector<int> axis_offsets(const AxisLayout& axis);

// The axes as one, the first outermost. Neighbours that touch (outer stride = inner size * inner stride)
// become one mode.
AxisLayout flatten_axes(std::span<const AxisLayout> axes);
// One axis of a single mode, cut into axes of the given sizes (whose product is its size), outermost first.
std::vector<AxisLayout> split_axis(const AxisMode& axis, std::span<const int> sizes);
// No position is reached by two different coordinates.
bool axes_overlap(std::span<const AxisLayout> axes);

// Row-major positions of the grid that the axes span from `base`.
std::vector<int> grid_positions(std::span<const AxisLayout> axes, int base);

}  // namespace tandem
