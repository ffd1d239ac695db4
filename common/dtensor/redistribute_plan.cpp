#include "common/dtensor/redistribute_plan.h"

#include <cstddef>
#include <utility>

#include "common/dtensor/layout.h"
#include "common/error.h"

namespace tandem {
namespace {

using Kind = RedistributeStep::Kind;

Kind kind_of(const Placement& from, const Placement& to) {
    if (from == to) return Kind::none;
    if (from.is_shard() && to.is_replicate()) return Kind::all_gather;
    if (from.is_shard() && to.is_shard()) return Kind::all_to_all;
    if (from.is_replicate() && to.is_shard()) return Kind::local_chunk;
    if (from.is_partial() && to.is_replicate()) return Kind::all_reduce;
    if (from.is_partial() && to.is_shard()) return Kind::reduce_scatter;
    if (from.is_replicate() && to == Partial()) return Kind::partition;
    throw InvalidArgument(
        fmt::format("cannot redistribute from {} to {}: a Partial is made only of R, and only P(sum)",
                    to_string(from), to_string(to)));
}

void refuse_new_partials(const Placements& from, const Placements& to) {
    for (std::size_t i = 0; i < to.size(); ++i) {
        require(!to[i].is_partial() || to[i] == from[i], [&] {
            return fmt::format(
                "cannot redistribute from {} to {}: Partial as a target is for internal use only; use R or "
                "S(dim)",
                to_string(from), to_string(to));
        });
    }
}

// The placements outside of `axis` that cut `dim`.
std::vector<std::pair<std::size_t, Placement>> outer_cuts(const Placements& placements, std::size_t axis,
                                                          int dim) {
    std::vector<std::pair<std::size_t, Placement>> result;
    for (std::size_t i = 0; i < axis; ++i) {
        if (placements[i].is_shard(dim)) result.emplace_back(i, placements[i]);
    }
    return result;
}

class Planner {
  public:
    Planner(const Shape& global_shape, const std::vector<int>& mesh_sizes,
            const std::vector<int>& coordinates, Placements from)
        : global_shape_(global_shape),
          sizes_(mesh_sizes),
          coordinates_(coordinates),
          current_(std::move(from)) {}

    const Placements& current() const { return current_; }

    void step(std::size_t axis, const Placement& to) {
        RedistributeStep step;
        step.axis = static_cast<int>(axis);
        step.from = current_[axis];
        step.to = to;
        step.kind = kind_of(step.from, to);  // refuses what cannot be, on an axis of one rank too
        if (sizes_[axis] == 1) step.kind = Kind::none;
        const auto outer = static_cast<std::ptrdiff_t>(axis);
        step.logical_shape =
            local_shape(global_shape_, sizes_, {current_.begin(), current_.begin() + outer}, coordinates_);
        step.local_before = local_shape(global_shape_, sizes_, current_, coordinates_);
        current_[axis] = to;
        step.local_after = local_shape(global_shape_, sizes_, current_, coordinates_);
        steps_.push_back(std::move(step));
    }

    std::vector<RedistributeStep> take() { return std::move(steps_); }

  private:
    const Shape& global_shape_;
    const std::vector<int>& sizes_;
    const std::vector<int>& coordinates_;
    Placements current_;
    std::vector<RedistributeStep> steps_;
};

}  // namespace

std::vector<RedistributeStep> plan_redistribute(const Shape& global_shape, const std::vector<int>& mesh_sizes,
                                                const std::vector<int>& coordinates, const Placements& from,
                                                const Placements& to, PartialTarget partial) {
    if (partial == PartialTarget::refuse) refuse_new_partials(from, to);
    Planner planner(global_shape, mesh_sizes, coordinates, from);
    if (mesh_sizes.size() == 1) {
        planner.step(0, to[0]);
        return planner.take();
    }
    std::int64_t shards = 1;
    for (std::size_t i = 0; i < from.size(); ++i) shards *= from[i].is_shard() ? mesh_sizes[i] : 1;
    if (shards > 1) {
        for (std::size_t axis = from.size(); axis-- > 0;) {
            Placement target = to[axis];
            if (target.is_shard() &&
                outer_cuts(planner.current(), axis, target.dim) != outer_cuts(to, axis, target.dim)) {
                target = Replicate();
            }
            if (planner.current()[axis] != target) planner.step(axis, target);
        }
    }
    for (std::size_t axis = 0; axis < from.size(); ++axis) {
        if (planner.current()[axis] != to[axis]) planner.step(axis, to[axis]);
    }
    return planner.take();
}

Placements gradient_placements(const Placements& source) {
    Placements result = source;
    for (Placement& placement : result) {
        if (placement.is_partial()) placement = Replicate();
    }
    return result;
}

std::string_view to_string(Kind kind) {
    switch (kind) {
        case Kind::none:
            return "none";
        case Kind::all_gather:
            return "all_gather";
        case Kind::all_to_all:
            return "all_to_all";
        case Kind::local_chunk:
            return "local_chunk";
        case Kind::all_reduce:
            return "all_reduce";
        case Kind::reduce_scatter:
            return "reduce_scatter";
        case Kind::partition:
            return "partition";
    }
    return "?";
}

std::int64_t RedistributeStep::bytes_received(int axis_size, int coordinate,
                                              std::int64_t element_bytes) const {
    // Elements for each index of the step's dim in the piece `shape`, of which this axis would give `held`
    // indices.
    const auto with_dim = [](Shape shape, int dim, std::int64_t held) {
        shape[static_cast<std::size_t>(dim)] = held;
        return numel(shape);
    };
    const auto slot = [&](const Placement& shard, const Shape& shape) {
        const std::int64_t n = logical_shape[static_cast<std::size_t>(shard.dim)];
        return with_dim(shape, shard.dim, axis_numel(shard, n, axis_size, 0));
    };
    switch (kind) {
        case Kind::none:
        case Kind::local_chunk:
        case Kind::partition:
            return 0;
        case Kind::all_gather:
            return (axis_size - 1) * slot(from, local_before) * element_bytes;
        case Kind::reduce_scatter:
            return (axis_size - 1) * slot(to, local_after) * element_bytes;
        case Kind::all_reduce:
            return 2 * numel(local_before) * (axis_size - 1) / axis_size * element_bytes;
        case Kind::all_to_all: {
            // All of this rank's new piece that it did not hold before.
            if (from.dim != to.dim) {
                const std::int64_t n = logical_shape[static_cast<std::size_t>(from.dim)];
                const std::int64_t own = axis_numel(from, n, axis_size, coordinate);
                return (numel(local_after) - with_dim(local_after, from.dim, own)) * element_bytes;
            }
            const std::int64_t n = logical_shape[static_cast<std::size_t>(from.dim)];
            const std::int64_t own = total_size(common_runs(axis_runs(from, n, axis_size, coordinate),
                                                            axis_runs(to, n, axis_size, coordinate)));
            return (numel(local_after) - with_dim(local_after, to.dim, own)) * element_bytes;
        }
    }
    return 0;
}

}  // namespace tandem
