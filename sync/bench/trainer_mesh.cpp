#include "sync/bench/trainer_mesh.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "common/dtensor/layout.h"
#include "common/error.h"

namespace tandem::sync {
namespace {

using model::Cut;
using model::Role;

constexpr std::array<std::string_view, 4> kAxes{"dp", "dp_replicate", "cp", "tp"};
constexpr int kLongestAxis = 1 << 20;  // size of an axis

int size_from(std::string_view text) {
    int size = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), size);
    if (error != std::errc() || end != text.data() + text.size() || size > kLongestAxis)
        throw BadInput(fmt::format("'{}' is no size", text));
    return size;
}

Placement tp_placement(const model::ParameterSpec& spec) {
    if (spec.cut == Cut::column || spec.cut == Cut::vocabulary) return Shard(0);
    return spec.cut == Cut::row ? Shard(1) : Replicate();
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
            throw BadInput(fmt::format("no axis '{}'; there are dp, dp_replicate, cp, tp", axis));
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

Holding holding_of(const ParallelDegrees& degrees, const model::ParameterSpec& spec) {
    const ParallelDims dims(degrees, static_cast<int>(ParallelDims::ranks_of(degrees)));
    const int tp = degrees.tp;
    Holding holding{
        {degrees.dp_replicate, dims.axis_size("fsdp"), tp}, {"dp_replicate", "fsdp", "tp"}, {Replicate()}};
    Placements over_tp{tp_placement(spec)};
    std::vector<int> tp_sizes{tp};
    if (spec.cut == Cut::column && spec.heads > 0 && spec.heads % tp != 0) {
        const bool shared = spec.role == Role::k || spec.role == Role::v;
        enforce(shared && tp % spec.heads == 0,
                "tensor '{}': {} heads do not divide by tensor parallelism {}", spec.name, spec.heads, tp);
        tp_sizes = {spec.heads, tp / spec.heads};
        holding.sizes = {holding.sizes[0], holding.sizes[1], tp_sizes[0], tp_sizes[1]};
        holding.axes = {"dp_replicate", "fsdp", "tp_heads", "tp_copies"};
        over_tp.push_back(Replicate());
    }
    const Placements inner =
        spec.shape.empty() ? Placements(1 + over_tp.size(), Replicate()) : fsdp_over_tp(over_tp, tp_sizes);
    holding.placements.insert(holding.placements.end(), inner.begin(), inner.end());
    return holding;
}

}  // namespace tandem::sync
