// The oracle of a reshard plan: element by element, without any of the planner's arithmetic. Every source
// element has a number of its own; moves are carried out on arrays of those numbers.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <string>
#include <tuple>
#include <vector>

#include "sync/plan/reshard.h"

namespace tandem::sync {

using Ids = std::vector<std::int64_t>;

// torch.chunk: piece r of k of a list.
inline Ids chunk_of(const Ids& list, int k, int r) {
    const std::size_t full = (list.size() + static_cast<std::size_t>(k) - 1) / static_cast<std::size_t>(k);
    Ids piece;
    for (std::size_t i = full * static_cast<std::size_t>(r);
         i < full * (static_cast<std::size_t>(r) + 1) && i < list.size(); ++i)
        piece.push_back(list[i]);
    return piece;
}

inline Ids placed(const Ids& list, const Placement& placement, int k, int r) {
    if (placement.kind == Placement::Kind::shard) return chunk_of(list, k, r);
    if (placement.kind != Placement::Kind::strided_shard) return list;
    Ids result;
    for (int j = 0; j < placement.split_factor; ++j) {
        const Ids piece = chunk_of(chunk_of(list, placement.split_factor, j), k, r);
        result.insert(result.end(), piece.begin(), piece.end());
    }
    return result;
}

// Calls f(index tuple) for all tuples below `size`, row-major.
template <typename F>
void for_each_index(const Shape& size, F f) {
    const std::int64_t count = numel(size);
    Shape index(size.size(), 0);
    for (std::int64_t i = 0; i < count; ++i) {
        f(index);
        for (std::size_t d = size.size(); d-- > 0;) {
            if (++index[d] < size[d]) break;
            index[d] = 0;
        }
    }
}

inline std::int64_t flat(const Shape& shape, const Shape& index) {
    std::int64_t result = 0;
    for (std::size_t d = 0; d < shape.size(); ++d) result = result * shape[d] + index[d];
    return result;
}

// The elements of a tensor that position `at` of a group holds, by their numbers.
inline Ids local_ids(const SourceGroup& group, const Shape& shape, std::size_t at) {
    std::vector<int> coordinates(group.mesh_sizes.size());
    std::size_t rest = at;
    for (std::size_t axis = coordinates.size(); axis-- > 0;) {
        const auto n = static_cast<std::size_t>(group.mesh_sizes[axis]);
        coordinates[axis] = static_cast<int>(rest % n);
        rest /= n;
    }
    std::vector<Ids> indices(shape.size());
    Shape sizes;
    for (std::size_t d = 0; d < shape.size(); ++d) {
        indices[d].resize(static_cast<std::size_t>(shape[d]));
        std::iota(indices[d].begin(), indices[d].end(), 0);
        for (std::size_t axis = 0; axis < coordinates.size(); ++axis) {
            if (!group.placements[axis].is_shard(static_cast<int>(d))) continue;
            indices[d] =
                placed(indices[d], group.placements[axis], group.mesh_sizes[axis], coordinates[axis]);
        }
        sizes.push_back(static_cast<std::int64_t>(indices[d].size()));
    }
    Ids ids;
    for_each_index(sizes, [&](const Shape& index) {
        Shape global;
        for (std::size_t d = 0; d < shape.size(); ++d)
            global.push_back(indices[d][static_cast<std::size_t>(index[d])]);
        ids.push_back(flat(shape, global));
    });
    return ids;
}

// [engine element]: {source tensor, number of its element}.
inline std::vector<std::pair<int, std::int64_t>> wanted(const SourceLayout& source,
                                                        const engine::TensorInfo& tensor) {
    const auto index_of = [&](const std::string& name) {
        for (std::size_t i = 0; i < source.tensors.size(); ++i)
            if (source.tensors[i].name == name) return static_cast<int>(i);
        ADD_FAILURE() << name;
        return 0;
    };
    std::vector<std::pair<int, std::int64_t>> result(static_cast<std::size_t>(numel(tensor.shape)), {-1, 0});
    if (tensor.parts.empty()) {
        for (std::size_t i = 0; i < result.size(); ++i)
            result[i] = {index_of(tensor.name), static_cast<std::int64_t>(i)};
    }
    for (const engine::Part& part : tensor.parts) {
        const int from = index_of(part.name);
        for_each_index(part.size, [&](const Shape& index) {
            std::int64_t to = part.offset;
            Shape global = part.start;
            for (std::size_t d = 0; d < index.size(); ++d) {
                to += index[d] * part.stride[d];
                global[d] += index[d];
            }
            result.at(static_cast<std::size_t>(to)) = {
                from, flat(source.tensors[static_cast<std::size_t>(from)].shape, global)};
        });
    }
    return result;
}

inline auto order_of(const Move& m) {
    return std::tie(m.engine_tensor, m.engine_rank, m.target_offset, m.source_rank);
}

// Carries the plan out and checks: every element of every engine tensor written once, with what belongs
// there; all figures; the order of moves; moves_from and moves_to say the same.
inline void check_reshard(const ReshardPlan& plan) {
    const SourceLayout& source = plan.source();
    std::map<std::pair<int, int>, Ids> local;  // (tensor, rank)
    for (std::size_t t = 0; t < source.tensors.size(); ++t) {
        for (const int g : source.tensors[t].groups) {
            const SourceGroup& group = source.groups[static_cast<std::size_t>(g)];
            for (std::size_t at = 0; at < group.ranks.size(); ++at) {
                local[{static_cast<int>(t), group.ranks[at]}] = local_ids(group, source.tensors[t].shape, at);
            }
        }
    }
    std::vector<std::uint64_t> from(static_cast<std::size_t>(source.world_size), 0);
    std::vector<Move> all;
    std::uint64_t total = 0;
    for (std::size_t rank = 0; rank < plan.engine().size(); ++rank) {
        const auto& tensors = plan.engine()[rank];
        std::vector<std::vector<std::pair<int, std::int64_t>>> holds;
        std::vector<std::vector<int>> writes;
        std::uint64_t to = 0;
        for (const auto& tensor : tensors) {
            holds.emplace_back(static_cast<std::size_t>(numel(tensor.shape)),
                               std::pair{-1, std::int64_t{-1}});
            writes.emplace_back(holds.back().size(), 0);
            to += engine::tensor_bytes(tensor);
        }
        const std::vector<Move> moves = plan.moves_to(static_cast<int>(rank));
        for (std::size_t i = 0; i < moves.size(); ++i) {
            const Move& m = moves[i];
            ASSERT_EQ(m.engine_rank, static_cast<int>(rank));
            if (i > 0) {
                ASSERT_TRUE(order_of(moves[i - 1]) < order_of(m)) << "order";
            }
            const auto t = static_cast<std::size_t>(m.engine_tensor);
            const auto found = local.find({m.source_tensor, m.source_rank});
            ASSERT_TRUE(found != local.end()) << "rank " << m.source_rank << " holds nothing of it";
            ASSERT_GE(m.rows, 1);
            ASSERT_GE(m.row_elements, 1);
            if (m.rows == 1) {
                ASSERT_EQ(m.source_stride, m.row_elements);
                ASSERT_EQ(m.target_stride, m.row_elements);
            }
            for (std::int64_t row = 0; row < m.rows; ++row) {
                for (std::int64_t e = 0; e < m.row_elements; ++e) {
                    const auto at = static_cast<std::size_t>(m.target_offset + row * m.target_stride + e);
                    const auto id = static_cast<std::size_t>(m.source_offset + row * m.source_stride + e);
                    ASSERT_LT(at, holds[t].size());
                    ASSERT_LT(id, found->second.size());
                    holds[t][at] = {m.source_tensor, found->second[id]};
                    ++writes[t][at];
                }
            }
            from[static_cast<std::size_t>(m.source_rank)] +=
                static_cast<std::uint64_t>(m.rows * m.row_elements) * dtype_size(tensors[t].dtype);
        }
        for (std::size_t t = 0; t < tensors.size(); ++t) {
            ASSERT_EQ(writes[t], std::vector<int>(writes[t].size(), 1)) << tensors[t].name;
            ASSERT_TRUE(holds[t] == wanted(source, tensors[t])) << tensors[t].name << " of rank " << rank;
        }
        ASSERT_EQ(plan.bytes_to()[rank], to);
        total += to;
        all.insert(all.end(), moves.begin(), moves.end());
    }
    ASSERT_EQ(plan.bytes(), total);
    ASSERT_EQ(plan.bytes_from(), from);
    ASSERT_EQ(plan.move_count(), all.size());
    std::stable_sort(all.begin(), all.end(),
                     [](const Move& a, const Move& b) { return order_of(a) < order_of(b); });
    for (int rank = 0; rank < source.world_size; ++rank) {
        std::vector<Move> expected;
        for (const Move& m : all)
            if (m.source_rank == rank) expected.push_back(m);
        ASSERT_TRUE(plan.moves_from(rank) == expected) << "moves_from " << rank;
    }
}

}  // namespace tandem::sync
