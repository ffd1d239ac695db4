#include "common/mesh/parallel_dims.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>

#include "common/error.h"

namespace tandem {
namespace {

// Degrees are validated one by one before they are multiplied; more than this cannot be a number of ranks.
constexpr std::int64_t kTooMany = std::int64_t{1} << 31;

// --- checks of the degrees

std::int64_t product(std::initializer_list<int> degrees) {
    std::int64_t result = 1;
    for (const int degree : degrees) result = std::min(result * degree, kTooMany);
    return result;
}

std::string list_of_names(const std::vector<std::string>& names) {
    std::string text;
    for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
    return text;
}

ParallelDegrees validated(ParallelDegrees d, int world_size) {
    const std::pair<const char*, int> at_least_one[] = {{"dp_replicate", d.dp_replicate},
                                                        {"cp", d.cp},
                                                        {"tp", d.tp},
                                                        {"pp", d.pp},
                                                        {"ep", d.ep},
                                                        {"etp", d.etp}};
    enforce(world_size >= 1, "world_size({}) must be at least 1", world_size);
    for (const auto& [name, degree] : at_least_one) {
        enforce(degree >= 1, "{}({}): a parallelism degree must be at least 1 (only dp_shard may be -1)",
                name, degree);
    }
    enforce(d.dp_shard == -1 || d.dp_shard >= 1, "dp_shard({}) must be at least 1, or -1 to infer it",
            d.dp_shard);
    if (d.dp_shard == -1) {
        const std::int64_t others = product({d.dp_replicate, d.cp, d.tp, d.pp});
        enforce(others <= world_size,
                "dp_shard cannot be inferred: dp_replicate({}) * cp({}) * tp({}) * pp({}) = {} is more than "
                "world_size({})",
                d.dp_replicate, d.cp, d.tp, d.pp, others, world_size);
        d.dp_shard = static_cast<int>(world_size / others);
    }
    const std::int64_t ranks = ParallelDims::ranks_of(d);
    enforce(ranks == world_size,
            "invalid parallel dims: dp_replicate({}) * dp_shard({}) * cp({}) * tp({}) * pp({}) = {} != "
            "world_size({}); these degrees need {} ranks",
            d.dp_replicate, d.dp_shard, d.cp, d.tp, d.pp, ranks, world_size, ranks);
    enforce(d.ep == 1 || d.etp == d.tp || d.etp == 1, "etp({}) must be tp({}) or 1 when ep({}) is above 1",
            d.etp, d.tp, d.ep);
    // The sparse mesh cuts the same ranks as (fsdp, tp) into (efsdp, ep, etp): both degrees must fit in
    // together.
    const std::int64_t sparse = product({d.dp_shard, d.cp, d.tp});
    const std::int64_t experts = product({d.ep, d.etp});
    enforce(sparse % experts == 0,
            "ep({}) * etp({}) = {} does not divide dp_shard({}) * cp({}) * tp({}) = {}: the experts' ranks "
            "must be whole groups",
            d.ep, d.etp, experts, d.dp_shard, d.cp, d.tp, sparse);
    return d;
}

}  // namespace

std::int64_t ParallelDims::ranks_of(const ParallelDegrees& d) {
    return product({d.dp_replicate, d.dp_shard, d.cp, d.tp, d.pp});
}

struct ParallelDims::Meshes {
    DeviceMesh world;
    std::vector<DeviceMesh> global;  // in the order in which several axes are looked up
    DeviceMesh train;
    std::map<std::string, DeviceMesh> axes;
};

ParallelDims::ParallelDims(const ParallelDegrees& degrees, int world_size, int rank)
    : degrees_(validated(degrees, world_size)), world_size_(world_size), rank_(rank) {
    require(rank >= 0 && rank < world_size, "rank {} of {}", rank, world_size);
}

ParallelDims::ParallelDims(const ParallelDegrees& degrees, std::shared_ptr<comm::Communicator> world)
    : degrees_(validated(degrees, world->size())),
      world_size_(world->size()),
      rank_(world->rank()),
      world_(std::move(world)) {}

// --- axes by name

const std::vector<std::string>& ParallelDims::axis_names() {
    static const std::vector<std::string> names = {"pp", "batch", "loss", "dp_replicate", "fsdp",
                                                   "cp", "tp",    "ep",   "efsdp",        "etp"};
    return names;
}

int ParallelDims::axis_size(const std::string& axis) const {
    const ParallelDegrees& d = degrees_;
    if (axis == "pp") return d.pp;
    if (axis == "batch") return d.dp_replicate * d.dp_shard;
    if (axis == "loss") return d.dp_replicate * d.dp_shard * d.cp;
    if (axis == "dp_replicate") return d.dp_replicate;
    if (axis == "fsdp") return d.dp_shard * d.cp;
    if (axis == "cp") return d.cp;
    if (axis == "tp") return d.tp;
    if (axis == "ep") return d.ep;
    if (axis == "efsdp") return d.dp_shard * d.cp * d.tp / (d.ep * d.etp);
    if (axis == "etp") return d.etp;
    throw BadInput(
        fmt::format("Invalid mesh dim: '{}'. Valid dimensions are: [{}]", axis, list_of_names(axis_names())));
}

bool ParallelDims::axis_exists(const std::string& axis) const {
    return axis == "efsdp" ? degrees_.ep > 1 : axis_size(axis) > 1;
}

// --- the meshes: one world, cut several ways; made once

const ParallelDims::Meshes& ParallelDims::meshes() const {
    if (meshes_) return *meshes_;
    const ParallelDegrees& d = degrees_;
    const DeviceMesh world = world_ ? DeviceMesh::create(world_, {world_size_}, {"world"})
                                    : DeviceMesh::abstract({world_size_}, {"world"}, rank_);
    const DeviceMesh dataloading =
        world.unflatten("world", {d.pp, axis_size("batch"), d.cp, d.tp}, {"pp", "batch", "cp", "tp"});
    const DeviceMesh loss = dataloading.flatten({"batch", "cp"}, "loss_mesh");
    const DeviceMesh dense = world.unflatten("world", {d.pp, d.dp_replicate, axis_size("fsdp"), d.tp},
                                             {"pp", "dp_replicate", "fsdp", "tp"});
    const DeviceMesh sparse =
        world.unflatten("world", {d.pp, d.dp_replicate, axis_size("efsdp"), d.ep, d.etp},
                        {"pp", "dp_replicate", "efsdp", "ep", "etp"});
    const DeviceMesh train = world.unflatten("world", {d.pp, d.dp_replicate, d.dp_shard, d.cp, d.tp},
                                             {"pp", "dp_replicate", "dp_shard", "cp", "tp"});
    train.flatten({"dp_replicate", "dp_shard"}, "dp");
    train.flatten({"dp_shard", "cp"}, "dp_shard_cp");
    train.flatten({"dp_replicate", "dp_shard", "cp"}, "dp_cp");
    Meshes built{world, {dataloading, loss, dense, sparse}, train, {}};
    for (const std::string& axis : axis_names()) {
        if (axis == "loss") {
            built.axes.emplace(axis, loss);
            continue;
        }
        const auto home = std::find_if(built.global.begin(), built.global.end(),
                                       [&](const DeviceMesh& mesh) { return mesh.has_axis(axis); });
        built.axes.emplace(axis, home->slice({axis}));
    }
    for (const auto& [axis, mesh] : built.axes) {
        require(mesh.size() == axis_size(axis), "mesh '{}' has unexpected size: expected {}, got {}", axis,
                axis_size(axis), mesh.size());
    }
    meshes_ = std::make_shared<const Meshes>(std::move(built));
    return *meshes_;
}

// --- looking one up

std::optional<DeviceMesh> ParallelDims::get_optional_mesh(const std::vector<std::string>& axes) const {
    require(!axes.empty(), "no mesh axis asked for; valid dimensions are: [{}]", list_of_names(axis_names()));
    bool all_exist = true;
    for (const std::string& axis : axes)
        all_exist = axis_exists(axis) && all_exist;  // refuses unknown names first
    const Meshes& built = meshes();
    if (!all_exist) return std::nullopt;
    if (axes.size() == 1) return built.axes.at(axes[0]);
    for (const DeviceMesh& mesh : built.global) {
        if (std::all_of(axes.begin(), axes.end(),
                        [&](const std::string& axis) { return mesh.has_axis(axis); })) {
            return mesh.slice(axes);
        }
    }
    throw BadInput(
        fmt::format("Invalid mesh name combinations [{}]: no mesh has all of them; there are "
                    "(pp, batch, cp, tp), (pp, dp_replicate, fsdp, tp), (pp, dp_replicate, efsdp, ep, etp)",
                    list_of_names(axes)));
}

DeviceMesh ParallelDims::get_mesh(const std::vector<std::string>& axes) const {
    const std::optional<DeviceMesh> mesh = get_optional_mesh(axes);
    if (mesh) return *mesh;
    if (axes.size() == 1) {
        throw BadInput(
            fmt::format("Mesh '{}' is not available. Ensure the corresponding parallelism dimension is "
                        "enabled (size > 1).",
                        axes[0]));
    }
    throw BadInput(
        fmt::format("Mesh [{}] is not available. Ensure the corresponding parallelism dimensions are all "
                    "enabled (size > 1).",
                    list_of_names(axes)));
}

const DeviceMesh& ParallelDims::axis_mesh(const std::string& axis) const {
    axis_size(axis);  // refuses an unknown name
    return meshes().axes.at(axis);
}

std::vector<std::pair<std::string, DeviceMesh>> ParallelDims::one_dimensional_meshes() const {
    std::vector<std::pair<std::string, DeviceMesh>> result;
    for (const std::string& axis : axis_names()) {
        if (axis_size(axis) > 1) result.emplace_back(axis, meshes().axes.at(axis));
    }
    return result;
}

const DeviceMesh& ParallelDims::world_mesh() const {
    return meshes().world;
}
const DeviceMesh& ParallelDims::train_mesh() const {
    return meshes().train;
}

}  // namespace tandem
