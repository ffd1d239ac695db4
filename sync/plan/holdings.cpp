#include "sync/plan/holdings.h"

#include "common/error.h"
#include "sync/plan/assign.h"

namespace tandem::sync {

std::vector<Holding> holdings(const Shape& shape, const std::vector<int>& mesh_sizes,
                              const Placements& placements, const std::vector<int>& coordinates, int rank) {
    for (const Placement& placement : placements) {
        require(placement.kind != Placement::Kind::partial && (!placement.is_shard() || placement.dim == 0),
                "gather reads tensors that are sharded along dim 0 or replicated, not {}",
                to_string(placements));
    }
    if (shape.empty()) return {{rank, 0, 1, 0}};
    const LocalLayout layout = local_layout(shape, mesh_sizes, placements, coordinates);
    std::vector<Holding> result;
    std::int64_t local = 0;
    for (const auto& [start, stop] : layout.runs[0]) {
        if (start < stop) result.push_back({rank, start, stop, local});
        local += stop - start;
    }
    return result;
}

std::vector<Holding> holdings(const DTensor& tensor, int rank) {
    const DeviceMesh& mesh = tensor.mesh();
    std::vector<int> sizes;
    std::vector<int> coordinates;
    for (int axis = 0; axis < mesh.ndim(); ++axis) {
        sizes.push_back(mesh.size(axis));
        coordinates.push_back(mesh.coordinate(axis));
    }
    return holdings(tensor.shape(), sizes, tensor.placements(), coordinates, rank);
}

}  // namespace tandem::sync
