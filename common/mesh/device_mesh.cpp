#include "common/mesh/device_mesh.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "common/comm/launch.h"
#include "common/error.h"

namespace tandem {

// Shared by all meshes derived from one another. Positions of the root's grid index `ranks`.
struct DeviceMesh::Root {
    std::shared_ptr<comm::Communicator> world;  // null: abstract
    std::vector<int> ranks;                     // position -> global rank
    std::unordered_map<int, int> positions;     // global rank -> position
    int position = 0;                           // this rank's
    std::vector<std::string> names;             // of the first mesh

    std::mutex mutex;  // guards what follows
    std::map<std::vector<int>, std::shared_ptr<comm::Communicator>> groups;
    std::shared_ptr<comm::Communicator> solo;
    std::map<std::string, AxisLayout> flattened;

    Root(std::shared_ptr<comm::Communicator> world_in, std::vector<int> ranks_in, int position_in)
        : world(std::move(world_in)), ranks(std::move(ranks_in)), position(position_in) {
        positions.reserve(ranks.size());
        for (std::size_t i = 0; i < ranks.size(); ++i) positions.emplace(ranks[i], static_cast<int>(i));
        if (world && world->size() > 1) groups.emplace(ranks, world);
    }
};

namespace {

// --- checks of sizes and names

std::string joined(const std::vector<std::string>& items) {
    std::string text;
    for (const std::string& item : items) text += (text.empty() ? "" : ", ") + item;
    return text;
}

std::string joined(const std::vector<int>& items) {
    std::string text;
    for (const int item : items) text += (text.empty() ? "" : ", ") + std::to_string(item);
    return text;
}

std::int64_t checked_product(const std::vector<int>& sizes) {
    constexpr std::int64_t kMostRanks = std::int64_t{1} << 30;
    std::int64_t product = 1;
    for (const int size : sizes) {
        enforce(size >= 1, "mesh axis of size {} in ({}): every size must be at least 1", size,
                joined(sizes));
        product *= size;
        enforce(product <= kMostRanks, "mesh ({}) has more than {} ranks", joined(sizes), kMostRanks);
    }
    return product;
}

void check_names(const std::vector<int>& sizes, const std::vector<std::string>& names) {
    require(sizes.size() == names.size(), "{} mesh sizes ({}) but {} axis names ({}): one name for each size",
            sizes.size(), joined(sizes), names.size(), joined(names));
    require(!sizes.empty(), "a mesh needs at least one axis");
    for (std::size_t i = 0; i < names.size(); ++i) {
        require(!names[i].empty(), "mesh axis {} has an empty name", i);
        require(std::find(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(i), names[i]) ==
                    names.begin() + static_cast<std::ptrdiff_t>(i),
                "mesh axis name '{}' appears twice in ({})", names[i], joined(names));
    }
}

}  // namespace

// --- meshes from nothing

DeviceMesh::DeviceMesh(std::shared_ptr<Root> root, std::vector<AxisLayout> axes,
                       std::vector<std::string> names)
    : root_(std::move(root)) {
    Grid grid;
    grid.base = root_->position;
    for (const AxisLayout& axis : axes) {
        grid.sizes.push_back(axis_size(axis));
        grid.coordinates.push_back(axis_coordinate(axis, root_->position));
        for (const AxisMode& mode : axis)
            grid.base -= (root_->position / mode.stride) % mode.size * mode.stride;
    }
    grid.ranks = grid_positions(axes, grid.base);
    for (int& rank : grid.ranks) rank = root_->ranks[static_cast<std::size_t>(rank)];
    grid.axes = std::move(axes);
    grid.names = std::move(names);
    grid_ = std::make_shared<const Grid>(std::move(grid));
}

DeviceMesh DeviceMesh::make(std::shared_ptr<Root> root, std::vector<int> sizes,
                            std::vector<std::string> names) {
    root->names = names;
    return DeviceMesh(std::move(root), row_major(sizes), std::move(names));
}

DeviceMesh DeviceMesh::create(std::shared_ptr<comm::Communicator> world, std::vector<int> sizes,
                              std::vector<std::string> names) {
    require(world != nullptr, "a mesh needs a world communicator; DeviceMesh::abstract does without");
    check_names(sizes, names);
    const std::int64_t product = checked_product(sizes);
    enforce(product == world->size(),
            "mesh ({}) has {} ranks, but there are {}: the sizes must multiply to {}", joined(sizes), product,
            world->size(), world->size());
    const int position = world->rank();
    std::vector<int> ranks = world->global_ranks();
    return make(std::make_shared<Root>(std::move(world), std::move(ranks), position), std::move(sizes),
                std::move(names));
}

DeviceMesh DeviceMesh::abstract(std::vector<int> sizes, std::vector<std::string> names, int rank) {
    check_names(sizes, names);
    const std::int64_t product = checked_product(sizes);
    require(rank >= 0 && rank < product, "rank {} of a mesh of {} ranks: must be 0 to {}", rank, product,
            product - 1);
    std::vector<int> ranks(static_cast<std::size_t>(product));
    for (std::size_t i = 0; i < ranks.size(); ++i) ranks[i] = static_cast<int>(i);
    return make(std::make_shared<Root>(nullptr, std::move(ranks), rank), std::move(sizes), std::move(names));
}

// --- sizes and coordinates

std::size_t DeviceMesh::index_of(const std::string& axis) const {
    const auto found = std::find(grid_->names.begin(), grid_->names.end(), axis);
    require(found != grid_->names.end(), [&] {
        return fmt::format("unknown mesh axis '{}': this mesh has ({})", axis, joined(grid_->names));
    });
    return static_cast<std::size_t>(found - grid_->names.begin());
}

std::size_t DeviceMesh::checked(int axis) const {
    require(axis >= 0 && axis < ndim(), [&] {
        return fmt::format("mesh axis {} of a mesh with {} axes ({})", axis, ndim(), joined(grid_->names));
    });
    return static_cast<std::size_t>(axis);
}

int DeviceMesh::size(const std::string& axis) const {
    return grid_->sizes[index_of(axis)];
}
int DeviceMesh::size(int axis) const {
    return grid_->sizes[checked(axis)];
}
bool DeviceMesh::has_axis(const std::string& name) const {
    return std::find(grid_->names.begin(), grid_->names.end(), name) != grid_->names.end();
}
int DeviceMesh::rank() const {
    return root_->ranks[static_cast<std::size_t>(root_->position)];
}
int DeviceMesh::coordinate(const std::string& axis) const {
    return grid_->coordinates[index_of(axis)];
}
int DeviceMesh::coordinate(int axis) const {
    return grid_->coordinates[checked(axis)];
}

std::vector<int> DeviceMesh::coordinates_of(int global_rank) const {
    const auto found = root_->positions.find(global_rank);
    std::vector<int> result;
    int rest = found == root_->positions.end() ? -1 : found->second;
    if (rest >= 0) {
        for (const AxisLayout& axis : grid_->axes) {
            result.push_back(axis_coordinate(axis, found->second));
            for (const AxisMode& mode : axis) rest -= (found->second / mode.stride) % mode.size * mode.stride;
        }
    }
    require(rest == grid_->base, "rank {} is not in this mesh of {} ranks", global_rank, size());
    return result;
}

// --- meshes from meshes

DeviceMesh DeviceMesh::slice(const std::vector<std::string>& axes) const {
    require(!axes.empty(), "a slice of a mesh needs at least one axis of ({})", joined(grid_->names));
    check_names(std::vector<int>(axes.size(), 1), axes);
    std::vector<AxisLayout> picked;
    for (const std::string& name : axes) {
        if (has_axis(name)) {
            picked.push_back(grid_->axes[index_of(name)]);
            continue;
        }
        const std::lock_guard lock(root_->mutex);
        const auto flat = root_->flattened.find(name);
        if (flat == root_->flattened.end() || grid_->ranks.size() != root_->ranks.size()) index_of(name);
        picked.push_back(flat->second);
    }
    for (std::size_t i = 1; i < picked.size(); ++i) {
        require(picked[i - 1].back().stride >= picked[i].back().stride,
                "mesh axes ({}) are out of order: they must come in the order of the mesh, ({})",
                joined(axes), joined(grid_->names));
    }
    require(!axes_overlap(picked), "mesh axes ({}) overlap: they share ranks", joined(axes));
    return DeviceMesh(root_, std::move(picked), axes);
}

DeviceMesh DeviceMesh::flatten(const std::vector<std::string>& axes, const std::string& name) const {
    const DeviceMesh part = slice(axes);
    require(!name.empty(), "a flattened mesh axis needs a name");
    if (axes.size() == 1 && axes[0] == name) return part;
    const AxisLayout flat = flatten_axes(part.grid_->axes);
    require(
        !has_axis(name) && std::find(root_->names.begin(), root_->names.end(), name) == root_->names.end(),
        "cannot flatten ({}) to '{}': an axis of that name exists already in ({})", joined(axes), name,
        joined(has_axis(name) ? grid_->names : root_->names));
    {
        const std::lock_guard lock(root_->mutex);
        const auto [at, fresh] = root_->flattened.emplace(name, flat);
        require(fresh || at->second == flat,
                "cannot flatten ({}) to '{}': that name stands for other axes already", joined(axes), name);
    }
    return DeviceMesh(root_, {flat}, {name});
}

DeviceMesh DeviceMesh::permute(const std::vector<std::string>& axes) const {
    check_names(std::vector<int>(axes.size(), 1), axes);
    require(axes.size() == grid_->names.size(), "({}) are not all axes of the mesh, ({})", joined(axes),
            joined(grid_->names));
    std::vector<AxisLayout> layouts;
    for (const std::string& name : axes) layouts.push_back(grid_->axes[index_of(name)]);
    return DeviceMesh(root_, std::move(layouts), axes);
}

DeviceMesh DeviceMesh::first_and(int other, const std::string& name) const {
    const int here = grid_->coordinates[0];
    require(grid_->ranks.size() == root_->ranks.size() && grid_->axes[0].size() == 1,
            "two ranks of an axis are taken from the mesh of all ranks");
    require(0 < other && other < grid_->sizes[0] && (here == 0 || here == other),
            "rank {} of axis '{}', of {}, is none of 0 and {}", here, grid_->names[0], grid_->sizes[0],
            other);
    return DeviceMesh(root_, {{{2, other * grid_->axes[0][0].stride}}}, {name});
}

DeviceMesh DeviceMesh::behind(const DeviceMesh& outer) const {
    require(outer.root_ == root_, "meshes of two roots");
    std::vector<AxisLayout> layouts = outer.grid_->axes;
    std::vector<std::string> names = outer.grid_->names;
    layouts.insert(layouts.end(), grid_->axes.begin(), grid_->axes.end());
    names.insert(names.end(), grid_->names.begin(), grid_->names.end());
    check_names(std::vector<int>(names.size(), 1), names);
    require(!axes_overlap(layouts), "mesh axes ({}) overlap: they share ranks", joined(names));
    return DeviceMesh(root_, std::move(layouts), std::move(names));
}

DeviceMesh DeviceMesh::unflatten(const std::string& axis, const std::vector<int>& sizes,
                                 const std::vector<std::string>& names) const {
    const std::size_t at = index_of(axis);
    check_names(sizes, names);
    const std::int64_t product = checked_product(sizes);
    require(product == grid_->sizes[at],
            "sizes ({}) multiply to {}, but axis '{}' has {} ranks: the product must be {}", joined(sizes),
            product, axis, grid_->sizes[at], grid_->sizes[at]);
    require(grid_->axes[at].size() == 1,
            "axis '{}' was flattened from axes that do not lie next to each other: cut those instead", axis);
    std::vector<AxisLayout> layouts = grid_->axes;
    std::vector<std::string> all_names = grid_->names;
    const auto offset = static_cast<std::ptrdiff_t>(at);
    const std::vector<AxisLayout> cut = split_axis(grid_->axes[at][0], sizes);
    layouts.erase(layouts.begin() + offset);
    layouts.insert(layouts.begin() + offset, cut.begin(), cut.end());
    all_names.erase(all_names.begin() + offset);
    all_names.insert(all_names.begin() + offset, names.begin(), names.end());
    check_names(std::vector<int>(all_names.size(), 1), all_names);
    return DeviceMesh(root_, std::move(layouts), std::move(all_names));
}

// --- groups of ranks; a communicator is made when it is first asked for

comm::Communicator& DeviceMesh::communicator(const std::string& axis) const {
    const std::size_t at = index_of(axis);
    const std::lock_guard lock(root_->mutex);
    if (grid_->sizes[at] == 1) {
        if (!root_->solo) root_->solo = comm::solo();
        return *root_->solo;
    }
    require(root_->world != nullptr,
            "axis '{}' of an abstract mesh has no communicator: it was made without a world", axis);
    int start = root_->position;
    for (const AxisMode& mode : grid_->axes[at])
        start -= (root_->position / mode.stride) % mode.size * mode.stride;
    std::vector<int> members = axis_offsets(grid_->axes[at]);
    for (int& member : members) member = root_->ranks[static_cast<std::size_t>(start + member)];
    auto found = root_->groups.find(members);
    if (found == root_->groups.end()) {
        found = root_->groups.emplace(members, root_->world->split(members, axis)).first;
    }
    return *found->second;
}

comm::Communicator& DeviceMesh::communicator(int axis) const {
    return communicator(grid_->names[checked(axis)]);
}

std::vector<std::vector<int>> DeviceMesh::groups(const std::string& axis) const {
    const AxisLayout& layout = grid_->axes[index_of(axis)];
    const std::vector<int> offsets = axis_offsets(layout);
    std::vector<std::vector<int>> result;
    result.reserve(root_->ranks.size() / offsets.size());
    for (int start = 0; start < static_cast<int>(root_->ranks.size()); ++start) {
        if (axis_coordinate(layout, start) != 0) continue;
        std::vector<int>& group = result.emplace_back();
        group.reserve(offsets.size());
        for (const int offset : offsets)
            group.push_back(root_->ranks[static_cast<std::size_t>(start + offset)]);
    }
    return result;
}

int DeviceMesh::groups_made() const {
    const std::lock_guard lock(root_->mutex);
    return static_cast<int>(root_->groups.size());
}

MemoryPool& DeviceMesh::memory() const {
    return root_->world ? root_->world->memory() : cpu_pool();
}

}  // namespace tandem
