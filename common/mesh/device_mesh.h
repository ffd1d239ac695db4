// PyTorch's DeviceMesh: ranks in an n-D grid, row-major, with named axes. A mesh is the caller's view of one rank: it
// knows the whole grid and this rank's coordinate. Communicators are made lazily, one for each axis, none for size 1.
// (`axis` is a mesh axis, `dim` a tensor dimension.)
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "common/comm/communicator.h"

namespace tandem {

class DeviceMesh {
  public:
    // The grid of all ranks of `world`. Throws InvalidArgument when the sizes do not multiply to world->size().
    static DeviceMesh create(std::shared_ptr<comm::Communicator> world, std::vector<int> sizes,
                             std::vector<std::string> names);
    // A grid without communication (inspection, planning): `rank` of world_size = product of sizes.
    static DeviceMesh abstract(std::vector<int> sizes, std::vector<std::string> names, int rank = 0);

    int ndim() const;
    int size() const;  // of the whole mesh
    int size(const std::string& axis) const;
    int size(int axis) const;
    const std::vector<std::string>& names() const;
    int coordinate(const std::string& axis) const;  // this rank's
    int coordinate(int axis) const;
    std::vector<int> coordinates_of(int global_rank) const;
    const std::vector<int>& ranks() const;  // global ranks, row-major

    DeviceMesh slice(const std::vector<std::string>& axes) const;  // mesh["dp", "cp"]; order must be the mesh's order
    DeviceMesh flatten(const std::vector<std::string>& axes, const std::string& name) const;  // one axis of adjacent ones
    DeviceMesh unflatten(const std::string& axis, const std::vector<int>& sizes,
                         const std::vector<std::string>& names) const;

    // The group of this rank along an axis. Collective over that group on first use. A size-1 axis gives comm::solo().
    comm::Communicator& communicator(const std::string& axis) const;
    comm::Communicator& communicator(int axis) const;
    // Every group along an axis: lists of global ranks.
    std::vector<std::vector<int>> groups(const std::string& axis) const;

    struct Root;

  private:
    std::shared_ptr<Root> root_;  // world communicator and the cache of groups, shared by all derived meshes
    std::vector<int> sizes_;
    std::vector<int> strides_;
    std::vector<std::string> names_;
    std::vector<int> ranks_;
    int rank_ = 0;  // this rank, global
};

}  // namespace tandem
