#include "sync/bench/trainer_mesh.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "common/error.h"
#include "common/sharding/tensor_cut.h"
#include "sync/bench/stages.h"

namespace tandem::sync {
namespace {

constexpr std::array<std::string_view, 5> kAxes{"dp", "dp_replicate", "cp", "tp", "pp"};
constexpr int kLongestAxis = 1 << 20;  // size of an axis

int size_from(std::string_view text) {
    int size = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), size);
    if (error != std::errc() || end != text.data() + text.size() || size > kLongestAxis)
        throw BadInput(fmt::format("'{}' is no size", text));
    return size;
}

struct Grid {
    std::vector<int> sizes;
    std::vector<std::string> axes;
};

Grid grid_of(const TrainerMesh& mesh) {
    if (!mesh.named()) {
        Grid grid{mesh.sizes, {"dp", "cp"}};
        grid.axes.resize(mesh.sizes.size());
        return grid;
    }
    const ParallelDegrees degrees = mesh.degrees();
    return {{degrees.pp, degrees.dp_replicate, degrees.dp_shard * degrees.cp, degrees.tp},
            {"pp", "dp_replicate", "fsdp", "tp"}};
}

}  // namespace

TrainerMesh TrainerMesh::parse(const std::string& text) {
    TrainerMesh mesh;
    for (std::size_t begin = 0; begin <= text.size();) {
        const std::size_t comma = std::min(text.find(',', begin), text.size());
        const std::string_view word(text.data() + begin, comma - begin);
        begin = comma + 1;
        const std::size_t equals = word.find('=');
        if ((equals == std::string_view::npos) != mesh.axes.empty() && !mesh.sizes.empty())
            throw BadInput("sizes alone, or every one with its axis: dp=2,tp=2");
        if (equals == std::string_view::npos) {
            mesh.sizes.push_back(size_from(word));
            continue;
        }
        const std::string_view axis = word.substr(0, equals);
        if (std::find(kAxes.begin(), kAxes.end(), axis) == kAxes.end())
            throw BadInput(fmt::format("no axis '{}'; there are {}", axis, fmt::join(kAxes, ", ")));
        if (std::find(mesh.axes.begin(), mesh.axes.end(), axis) != mesh.axes.end())
            throw BadInput(fmt::format("axis {} twice", axis));
        mesh.axes.emplace_back(axis);
        mesh.sizes.push_back(size_from(word.substr(equals + 1)));
    }
    if (!mesh.named()) return mesh;
    if (std::any_of(mesh.sizes.begin(), mesh.sizes.end(), [](int size) { return size < 1; }))
        throw BadInput("sizes must be positive");
    mesh.degrees();
    return mesh;
}

ParallelDegrees TrainerMesh::degrees() const {
    int dp = 1;
    ParallelDegrees degrees;
    for (std::size_t i = 0; i < axes.size(); ++i) {
        if (axes[i] == "dp") dp = sizes[i];
        if (axes[i] == "dp_replicate") degrees.dp_replicate = sizes[i];
        if (axes[i] == "cp") degrees.cp = sizes[i];
        if (axes[i] == "tp") degrees.tp = sizes[i];
        if (axes[i] == "pp") degrees.pp = sizes[i];
    }
    if (dp % degrees.dp_replicate != 0)
        throw BadInput(fmt::format("dp_replicate {} does not divide dp {}", degrees.dp_replicate, dp));
    degrees.dp_shard = dp / degrees.dp_replicate;
    return degrees;
}

std::int64_t TrainerMesh::ranks() const {
    if (named()) return ParallelDims::ranks_of(degrees());
    std::int64_t ranks = 1;
    for (const int size : sizes) ranks = std::min<std::int64_t>(ranks * size, std::int64_t{1} << 31);
    return ranks;
}

nlohmann::json TrainerMesh::json() const {
    if (!named()) return sizes;
    nlohmann::json object = nlohmann::json::object();
    for (std::size_t i = 0; i < axes.size(); ++i) object[axes[i]] = sizes[i];
    return object;
}

std::string TrainerMesh::text() const {
    std::string text;
    for (std::size_t i = 0; i < sizes.size(); ++i)
        text += fmt::format("{}{}{}", i == 0 ? "" : ",", named() ? axes[i] + "=" : "", sizes[i]);
    return text;
}

std::string mesh_text(const nlohmann::json& mesh) {
    std::string text;
    for (const auto& [key, size] : mesh.items())
        text +=
            fmt::format("{}{}{}", text.empty() ? "" : ",", mesh.is_object() ? key + "=" : "", size.dump());
    return text;
}

void TrainerMesh::check_fits(const ModelShapes& model) const {
    if (!named()) return;
    const int tp = degrees().tp;
    const Stages stages(model.tensors, degrees().pp);
    if (model.sizes) return check_tensor_degree(*model.sizes, tp);
    for (const model::ParameterSpec& tensor : model.tensors) tensor_cut(tensor, tp);
}

DeviceMesh TrainerMesh::over(std::shared_ptr<comm::Communicator> world) const {
    Grid grid = grid_of(*this);
    return DeviceMesh::create(std::move(world), std::move(grid.sizes), std::move(grid.axes));
}

DeviceMesh TrainerMesh::abstract(int rank) const {
    Grid grid = grid_of(*this);
    return DeviceMesh::abstract(std::move(grid.sizes), std::move(grid.axes), rank);
}

Holdings holdings_of(const DeviceMesh& mesh, const std::vector<model::ParameterSpec>& model) {
    struct Kind {
        bool whole;
        bool shared;
        TensorCut cut;
    };
    const Stages stages(model, mesh.size("pp"));
    const DeviceMesh of_stage = mesh.slice({"dp_replicate", "fsdp", "tp"});
    std::vector<Kind> kinds;
    Holdings held;
    for (const model::ParameterSpec& tensor : model) {
        if (!stages.holds(mesh.coordinate("pp"), tensor)) {
            held.kind_of.push_back(-1);
            continue;
        }
        const Kind kind{tensor.shape.empty(), stages.shares(tensor), tensor_cut(tensor, mesh.size("tp"))};
        const auto found = std::find_if(kinds.begin(), kinds.end(), [&](const Kind& known) {
            return known.whole == kind.whole && known.shared == kind.shared &&
                   known.cut.sizes == kind.cut.sizes && known.cut.placements == kind.cut.placements;
        });
        held.kind_of.push_back(static_cast<int>(found - kinds.begin()));
        if (found != kinds.end()) continue;
        kinds.push_back(kind);
        const Holding holding = holding_of(of_stage, "fsdp", tensor);
        held.kinds.push_back(kind.shared ? shared_holding(mesh.first_and(stages.last(), "pp_ends"), holding)
                                         : holding);
    }
    return held;
}

Holdings all_holdings(const TrainerMesh& mesh, const std::vector<model::ParameterSpec>& model) {
    Holdings all{{}, std::vector<int>(model.size(), -1)};
    const int stages = mesh.degrees().pp;
    const auto ranks_of_stage = static_cast<int>(mesh.ranks()) / stages;
    for (int stage = 0; stage < stages; ++stage) {
        const Holdings held = holdings_of(mesh.abstract(stage * ranks_of_stage), model);
        const auto before = static_cast<int>(all.kinds.size());
        all.kinds.insert(all.kinds.end(), held.kinds.begin(), held.kinds.end());
        for (std::size_t i = 0; i < model.size(); ++i) {
            if (held.has(i) && !all.has(i)) all.kind_of[i] = before + held.kind_of[i];
        }
    }
    return all;
}

}  // namespace tandem::sync
