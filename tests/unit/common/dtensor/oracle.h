// What a layout holds, found the slow way: lists of indices, chunked like torch.chunk does it, one element at
// a time. Shares nothing with common/dtensor but the names of the placements.
#pragma once

#include <fmt/core.h>

#include <cstring>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "common/dtensor/placement.h"
#include "common/tensor/tensor.h"

namespace tandem::oracle {

using Indices = std::vector<std::int64_t>;

// torch.chunk: pieces of ceil(n / k) until the list ends; empty ones up to k.
inline std::vector<Indices> chunk(const Indices& list, int k) {
    const std::size_t full = (list.size() + static_cast<std::size_t>(k) - 1) / static_cast<std::size_t>(k);
    std::vector<Indices> pieces(static_cast<std::size_t>(k));
    for (std::size_t i = 0; i < list.size(); ++i) pieces[i / full].push_back(list[i]);
    return pieces;
}

// The global indices along every dim that the rank at `coordinates` holds, in local order.
inline std::vector<Indices> held(const Shape& shape, const std::vector<int>& sizes,
                                 const Placements& placements, const std::vector<int>& coordinates) {
    std::vector<Indices> result;
    for (const std::int64_t n : shape) {
        Indices& all = result.emplace_back();
        for (std::int64_t i = 0; i < n; ++i) all.push_back(i);
    }
    for (std::size_t axis = 0; axis < sizes.size(); ++axis) {
        if (!placements[axis].is_shard()) continue;
        Indices& dim = result[static_cast<std::size_t>(placements[axis].dim)];
        const int factor =
            placements[axis].kind == Placement::Kind::strided_shard ? placements[axis].split_factor : 1;
        Indices mine;
        for (const Indices& part : chunk(dim, factor)) {
            const Indices piece = chunk(part, sizes[axis])[static_cast<std::size_t>(coordinates[axis])];
            mine.insert(mine.end(), piece.begin(), piece.end());
        }
        dim = mine;
    }
    return result;
}

// The piece of the global tensor 1, 2, 3, … (times `factor`) at these coordinates, as a term where a
// placement is Partial. Terms are small integers, chosen so that reducing the axes in any order gives the
// global values without rounding.
inline Tensor piece(const Shape& shape, const std::vector<int>& sizes, const Placements& placements,
                    const std::vector<int>& coordinates, float factor = 1.0f) {
    float offset = 0;
    bool carries_value = true;
    for (std::size_t axis = 0; axis < sizes.size(); ++axis) {
        if (!placements[axis].is_partial()) continue;
        const auto c = static_cast<float>(coordinates[axis]);
        const auto balanced = 2 * c - static_cast<float>(sizes[axis] - 1);  // sums to 0 over the axis
        switch (placements[axis].reduce_op) {
            case comm::ReduceOp::sum:
                carries_value = carries_value && coordinates[axis] == 0;
                offset += balanced;
                break;
            case comm::ReduceOp::avg:
                offset += balanced;
                break;
            case comm::ReduceOp::max:
                offset -= 2 * c;
                break;
            case comm::ReduceOp::min:
                offset += 2 * c;
                break;
        }
    }
    const std::vector<Indices> dims = held(shape, sizes, placements, coordinates);
    Shape local;
    for (const Indices& dim : dims) local.push_back(static_cast<std::int64_t>(dim.size()));
    Tensor result = Tensor::empty(local, DType::float32, "oracle");
    for (std::int64_t i = 0; i < result.numel(); ++i) {
        std::int64_t rest = i, global = 0, stride = 1;
        for (std::size_t d = dims.size(); d-- > 0;) {
            global += dims[d][static_cast<std::size_t>(rest % local[d])] * stride;
            rest /= local[d];
            stride *= shape[d];
        }
        result.data<float>()[i] = (carries_value ? factor * static_cast<float>(global + 1) : 0.0f) + offset;
    }
    return result;
}

inline bool same_bytes(const Tensor& a, const Tensor& b) {
    return a.dtype() == b.dtype() && a.shape() == b.shape() &&
           (a.bytes() == 0 || std::memcmp(a.raw(), b.raw(), a.bytes()) == 0);
}

inline std::string text_of(const Tensor& tensor) {
    std::string text = to_string(tensor.shape()) + " {";
    for (const float value : tensor.values<float>()) text += fmt::format(" {}", value);
    return text + " }";
}

// All layouts of a mesh of `axes` axes made of these options.
inline std::vector<Placements> every_layout(const Placements& options, std::size_t axes) {
    std::vector<Placements> result{{}};
    for (std::size_t axis = 0; axis < axes; ++axis) {
        std::vector<Placements> longer;
        for (const Placements& prefix : result) {
            for (const Placement& option : options) {
                longer.push_back(prefix);
                longer.back().push_back(option);
            }
        }
        result = std::move(longer);
    }
    return result;
}

}  // namespace tandem::oracle
