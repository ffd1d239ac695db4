// PyTorch's DeviceMesh: ranks in an n-D grid, row-major, with named axes. A mesh is the caller's view of one
// rank: it knows the whole grid and this rank's coordinate. Communicators are made lazily, one for each axis,
// none for size 1.
// (`axis` is a mesh axis, `dim` a tensor dimension.)
//
// Meshes made from one another share a root: it keeps the world communicator and every group made so far, by
// its list of ranks, so two meshes whose axes join the same ranks use the same group. Copies are cheap enough
// to pass by value. Every wrong name, order or size throws InvalidArgument that says what would be right.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "common/comm/communicator.h"
#include "common/mesh/mesh_layout.h"

namespace tandem {

class DeviceMesh {
  public:
    // The grid of all ranks of `world`. Throws InvalidArgument when the sizes do not multiply to
    // world->size().
    static DeviceMesh create(std::shared_ptr<comm::Communicator> world, std::vector<int> sizes,
                             std::vector<std::string> names);
    // A grid without communication (inspection, planning): `rank` of world_size = product of sizes.
    static DeviceMesh abstract(std::vector<int> sizes, std::vector<std::string> names, int rank = 0);

    int ndim() const { return static_cast<int>(grid_->axes.size()); }
    int size() const { return static_cast<int>(grid_->ranks.size()); }  // of the whole mesh
    int size(const std::string& axis) const;
    int size(int axis) const;
    const std::vector<int>& sizes() const { return grid_->sizes; }
    const std::vector<std::string>& names() const { return grid_->names; }
    bool has_axis(const std::string& name) const;
    int rank() const;                               // this rank, global
    int coordinate(const std::string& axis) const;  // this rank's
    int coordinate(int axis) const;
    const std::vector<int>& coordinates() const { return grid_->coordinates; }  // this rank's
    std::vector<int> coordinates_of(int global_rank) const;
    const std::vector<int>& ranks() const { return grid_->ranks; }  // global ranks, row-major

    // mesh["dp", "cp"]; order must be the mesh's order. A mesh over all ranks of its root also takes the
    // names of flattened axes made before.
    DeviceMesh slice(const std::vector<std::string>& axes) const;
    // A 1-D mesh: the axes, in the mesh's order, as one.
    DeviceMesh flatten(const std::vector<std::string>& axes, const std::string& name) const;
    // This mesh with its axes, all of them, in another order: where DTensors are cut along an inner axis first.
    DeviceMesh permute(const std::vector<std::string>& axes) const;
    // The first and one other coordinate of the outermost axis alone, as a 1-D mesh `name` of two; on the ranks of those.
    DeviceMesh first_and(int other, const std::string& name) const;
    // The axes of `outer`, of the same root, before those of this mesh.
    DeviceMesh behind(const DeviceMesh& outer) const;
    // This mesh with one axis cut into several.
    DeviceMesh unflatten(const std::string& axis, const std::vector<int>& sizes,
                         const std::vector<std::string>& names) const;

    // The group of this rank along an axis. Collective over that group on first use. A size-1 axis gives
    // comm::solo(). Throws InvalidArgument on an abstract mesh.
    comm::Communicator& communicator(const std::string& axis) const;
    comm::Communicator& communicator(int axis) const;
    // Every group along an axis, over all ranks of the root: lists of global ranks.
    std::vector<std::vector<int>> groups(const std::string& axis) const;
    // The number of communicators of more than one rank that exist so far, the root's own included when it is
    // one.
    int groups_made() const;
    // Memory that peers reach without staging; private memory on an abstract mesh. Lives as long as any mesh
    // of the root.
    MemoryPool& memory() const;

  private:
    struct Root;
    DeviceMesh(std::shared_ptr<Root> root, std::vector<AxisLayout> axes, std::vector<std::string> names);
    static DeviceMesh make(std::shared_ptr<Root> root, std::vector<int> sizes,
                           std::vector<std::string> names);
    std::size_t index_of(const std::string& axis) const;  // throws naming the axes that exist
    std::size_t checked(int axis) const;

    struct Grid {
        std::vector<AxisLayout> axes;
        std::vector<std::string> names;
        std::vector<int> sizes;
        std::vector<int> coordinates;
        int base = 0;            // position of coordinates 0, 0, …
        std::vector<int> ranks;  // global, row-major
    };

    std::shared_ptr<Root> root_;
    std::shared_ptr<const Grid> grid_;  // shared by copies: every DTensor has one
};

}  // namespace tandem
