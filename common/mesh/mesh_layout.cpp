#include "common/mesh/mesh_layout.h"

#include <algorithm>
#include <cstddef>
#include <utility>

namespace tandem {

std::vector<AxisLayout> row_major(std::span<const int> sizes) {
    int total = 1;
    for (const int size : sizes) total *= size;
    return split_axis({total, 1}, sizes);
}

int axis_size(const AxisLayout& axis) {
    int size = 1;
    for (const AxisMode& mode : axis) size *= mode.size;
    return size;
}

int axis_coordinate(const AxisLayout& axis, int position) {
    int coordinate = 0;
    for (const AxisMode& mode : axis)
        coordinate = coordinate * mode.size + (position / mode.stride) % mode.size;
    return coordinate;
}

std::vector<int> axis_offsets(const AxisLayout& axis) {
    return grid_positions(std::span(&axis, 1), 0);
}

AxisLayout flatten_axes(std::span<const AxisLayout> axes) {
    AxisLayout result;
    for (const AxisLayout& axis : axes) {
        for (const AxisMode& mode : axis) {
            if (mode.size == 1) continue;
            if (!result.empty() && result.back().stride == mode.size * mode.stride) {
                result.back() = {result.back().size * mode.size, mode.stride};
            } else {
                result.push_back(mode);
            }
        }
    }
    // An axis of size 1 keeps the stride of its innermost part, so that the order of axes stays visible.
    if (result.empty()) result.push_back({1, axes.empty() ? 1 : axes.back().back().stride});
    return result;
}

std::vector<AxisLayout> split_axis(const AxisMode& axis, std::span<const int> sizes) {
    std::vector<AxisLayout> result(sizes.size());
    int stride = axis.stride;
    for (std::size_t i = sizes.size(); i-- > 0;) {
        result[i] = {{sizes[i], stride}};
        stride *= sizes[i];
    }
    return result;
}

bool axes_overlap(std::span<const AxisLayout> axes) {
    std::vector<AxisMode> modes;
    for (const AxisLayout& axis : axes) {
        for (const AxisMode& mode : axis) {
            if (mode.size > 1) modes.push_back(mode);
        }
    }
    std::sort(modes.begin(), modes.end(),
              [](const AxisMode& a, const AxisMode& b) { return a.stride < b.stride; });
    for (std::size_t i = 1; i < modes.size(); ++i) {
        if (modes[i - 1].size * modes[i - 1].stride > modes[i].stride) return true;
    }
    return false;
}

std::vector<int> grid_positions(std::span<const AxisLayout> axes, int base) {
    std::vector<int> result{base};
    for (const AxisLayout& axis : axes) {
        for (const AxisMode& mode : axis) {
            std::vector<int> next;
            next.reserve(result.size() * static_cast<std::size_t>(mode.size));
            for (const int position : result) {
                for (int i = 0; i < mode.size; ++i) next.push_back(position + i * mode.stride);
            }
            result = std::move(next);
        }
    }
    return result;
}

}  // namespace tandem
