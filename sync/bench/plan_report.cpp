#include "sync/bench/plan_report.h"

#include <fmt/core.h>

#include <algorithm>
#include <numeric>

#include "common/error.h"
#include "common/stopwatch.h"
#include "sync/bench/shapes.h"
#include "sync/plan/reshard.h"

namespace tandem::sync {
namespace {

constexpr std::int64_t kMostRanks = 1 << 16;

std::int64_t product(const std::vector<int>& sizes) {
    std::int64_t result = 1;
    for (const int size : sizes) result = std::min<std::int64_t>(result * size, kMostRanks + 1);
    return result;
}

void check_mesh(const char* option, const std::vector<int>& sizes) {
    if (std::any_of(sizes.begin(), sizes.end(), [](int size) { return size < 1; }))
        throw ConfigError("command line", option, "sizes must be positive");
    if (product(sizes) > kMostRanks)
        throw ConfigError("command line", option, fmt::format("at most {} ranks", kMostRanks));
}

Placements placements_of(const PlanReportOptions& options) {
    if (!options.placements.empty()) return parse_placements(options.placements);
    Placements result(options.mesh.sizes.size(), Replicate());
    result.back() = Shard(0);
    return result;
}

// [tensor]: its group. One for each count of dims: a placement of a dim that a tensor lacks cuts its dim 0.
std::vector<int> add_groups_by_dims(const std::vector<model::ParameterSpec>& model,
                                    const PlanReportOptions& options, SourceLayout& source) {
    std::vector<int> group_of;
    std::size_t most_dims = 0;
    for (const model::ParameterSpec& tensor : model) {
        group_of.push_back(static_cast<int>(tensor.shape.size()));
        most_dims = std::max(most_dims, tensor.shape.size());
    }
    SourceGroup all{std::vector<int>(static_cast<std::size_t>(source.world_size)), options.mesh.sizes,
                    placements_of(options)};
    std::iota(all.ranks.begin(), all.ranks.end(), 0);
    for (std::size_t dims = 0; dims <= most_dims; ++dims) {
        SourceGroup& group = source.groups.emplace_back(all);
        for (Placement& placement : group.placements) {
            if (!placement.is_shard() || placement.dim < static_cast<int>(dims)) continue;
            placement = dims == 0 ? Replicate() : placement;
            placement.dim = 0;
        }
    }
    return group_of;
}

std::vector<int> add_named_groups(const std::vector<model::ParameterSpec>& model,
                                  const PlanReportOptions& options, SourceLayout& source) {
    Holdings held = all_holdings(options.mesh, model);
    for (const Holding& kind : held.kinds)
        source.groups.push_back({kind.mesh.ranks(), kind.mesh.sizes(), kind.placements});
    return std::move(held.kind_of);
}

int expert_of(const model::ParameterSpec& tensor) {
    enforce(tensor.expert >= 0, "tensor '{}': no '.experts.N.' in the name of an expert's tensor",
            tensor.name);
    return static_cast<int>(tensor.expert);
}

int ranks_of_stage(const PlanReportOptions& options) {
    return options.world_size() / options.mesh.degrees().pp;
}

// The groups of the experts' mesh, [stage * ep + which of ep]: as many of each as a stage has replicas.
std::vector<std::vector<int>> add_expert_groups(const PlanReportOptions& options, SourceLayout& source) {
    const int ep = options.expert_mesh[0];
    const int fsdp = options.expert_mesh[1];
    const int ranks = ranks_of_stage(options);
    std::vector<std::vector<int>> groups(static_cast<std::size_t>(source.world_size / ranks * ep));
    for (int start = 0; start < source.world_size; start += fsdp) {
        SourceGroup group{std::vector<int>(static_cast<std::size_t>(fsdp)), {fsdp}, {Shard(0)}};
        std::iota(group.ranks.begin(), group.ranks.end(), start);
        const auto which = static_cast<std::size_t>(start / ranks * ep + start % ranks / fsdp % ep);
        groups[which].push_back(static_cast<int>(source.groups.size()));
        source.groups.push_back(std::move(group));
    }
    return groups;
}

nlohmann::json spread(const std::vector<std::uint64_t>& values) {
    const auto [least, most] = std::minmax_element(values.begin(), values.end());
    const double sum = std::accumulate(values.begin(), values.end(), 0.0);
    return {{"min", *least}, {"max", *most}, {"mean", sum / static_cast<double>(values.size())}};
}

std::string bytes_text(double bytes) {
    if (bytes >= 1e12) return fmt::format("{:.3f} TB", bytes / 1e12);
    if (bytes >= 1e9) return fmt::format("{:.3f} GB", bytes / 1e9);
    return fmt::format("{:.3f} MB", bytes / 1e6);
}

}  // namespace

int PlanReportOptions::world_size() const {
    return static_cast<int>(mesh.ranks());
}

void PlanReportOptions::validate() const {
    if (mesh.sizes.empty()) throw ConfigError("command line", "--mesh", "needs at least one size");
    check_mesh("--mesh", mesh.named() ? std::vector{static_cast<int>(std::min(mesh.ranks(), kMostRanks + 1))}
                                      : mesh.sizes);
    try {
        const Placements parsed = placements_of(*this);
        enforce(!mesh.named() || placements.empty(), "are those of the axes' names");
        enforce(parsed.size() == mesh.sizes.size(), "{} placements for a mesh with {} axes", parsed.size(),
                mesh.sizes.size());
    } catch (const InvalidArgument& error) {
        throw ConfigError("command line", "--placements", error.what());
    }
    ModelShapes model;
    if (mesh.named()) model = model_shapes(shapes);
    try {
        mesh.check_fits(model);
    } catch (const InvalidArgument& error) {
        throw ConfigError("command line", "--mesh", error.what());
    }
    check_mesh("--expert-mesh", expert_mesh);
    if (!expert_mesh.empty() && expert_mesh.size() != 2)
        throw ConfigError("command line", "--expert-mesh", "needs two sizes: ep,fsdp");
    const int ranks_of_one = ranks_of_stage(*this);
    if (ranks_of_one % product(expert_mesh) != 0) {
        throw ConfigError("command line", "--expert-mesh",
                          fmt::format("{} ranks{} do not divide by {}", ranks_of_one,
                                      mesh.degrees().pp > 1 ? " of a stage" : "", product(expert_mesh)));
    }
    const int ranks = std::max(engine.tp, engine.ep);
    if (engine.tp < 1 || engine.ep < 1 || ranks % engine.tp != 0 || ranks % engine.ep != 0)
        throw ConfigError("command line", "--engine-tp, --engine-ep", "one must divide the other");
    check_mesh("--engine-tp, --engine-ep", {ranks});
}

SourceLayout trainer_layout(const std::vector<model::ParameterSpec>& model,
                            const PlanReportOptions& options) {
    SourceLayout source;
    source.world_size = options.world_size();
    std::vector<int> group_of = options.mesh.named() ? add_named_groups(model, options, source)
                                                     : add_groups_by_dims(model, options, source);
    std::vector<std::vector<int>> expert_groups;
    if (!options.expert_mesh.empty()) expert_groups = add_expert_groups(options, source);
    int experts = 0;
    for (const model::ParameterSpec& tensor : model) {
        if (tensor.cut == model::Cut::expert) experts = std::max(experts, expert_of(tensor) + 1);
    }
    const int ways = expert_groups.empty() ? 1 : options.expert_mesh[0];
    enforce(experts % ways == 0, "{} experts do not divide by the {} of the experts' mesh", experts, ways);
    for (std::size_t i = 0; i < model.size(); ++i) {
        const model::ParameterSpec& tensor = model[i];
        std::vector<int> groups{group_of[i]};
        if (tensor.cut == model::Cut::expert && !expert_groups.empty()) {
            const int holder = source.groups[static_cast<std::size_t>(group_of[i])].ranks.front();
            const int stage = holder / ranks_of_stage(options);
            groups =
                expert_groups[static_cast<std::size_t>(stage * ways + expert_of(tensor) / (experts / ways))];
        }
        source.tensors.push_back({tensor.name, tensor.shape, options.source_dtype, std::move(groups)});
    }
    return source;
}

nlohmann::json plan_report(const PlanReportOptions& options) {
    options.validate();
    const std::vector<model::ParameterSpec> model = model_tensors(options.shapes);
    std::int64_t parameters = 0;
    for (const model::ParameterSpec& tensor : model) parameters += numel(tensor.shape);
    SourceLayout source = trainer_layout(model, options);
    EngineLayout engine = engine_layout(model, options.engine, options.engine_dtype);
    const Stopwatch planning;
    const ReshardPlan plan =
        ReshardPlan::make(std::move(source), std::move(engine), {options.min_split_bytes});
    const double plan_ms = planning.ms();
    const Stopwatch expanding;
    const std::size_t expanded = plan.moves_to(0).size();
    const double expand_ms = expanding.ms();
    nlohmann::json report{
        {"shapes", options.shapes},
        {"tensors", model.size()},
        {"parameters", parameters},
        {"mesh", options.mesh.json()},
        {"placements", options.mesh.named() ? "by name" : to_string(placements_of(options))},
        {"expert_mesh", options.expert_mesh},
        {"engine_tp", options.engine.tp},
        {"engine_ep", options.engine.ep},
        {"fused", options.engine.fused},
        {"source_dtype", dtype_name(options.source_dtype)},
        {"engine_dtype", dtype_name(options.engine_dtype)},
        {"source_ranks", plan.source().world_size},
        {"engine_ranks", plan.engine().size()},
        {"plan_ms", plan_ms},
        {"expand_ms", expand_ms},
        {"expanded_moves", expanded},
        {"moves", plan.move_count()},
        {"patterns", plan.pattern_count()},
        {"bytes", plan.bytes()},
        {"bytes_from", spread(plan.bytes_from())},
        {"bytes_to", spread(plan.bytes_to())}};
    const double mean = report["bytes_from"]["mean"].get<double>();
    report["balance"] = mean > 0 ? report["bytes_from"]["max"].get<double>() / mean : 1.0;
    return report;
}

std::string plan_table(const nlohmann::json& r) {
    const std::string mesh = mesh_text(r.at("mesh"));
    const auto count = [&](const char* key) { return r.at(key).get<std::uint64_t>(); };
    const auto ms = [&](const char* key) { return fmt::format("{:.1f} ms", r.at(key).get<double>()); };
    const auto row = [](const char* name, const std::string& value, const std::string& note) {
        return fmt::format("  {:<14}{:>14}   {}\n", name, value, note);
    };
    const auto spread_row = [&](const char* name, const char* key, const std::string& note) {
        const auto& s = r.at(key);
        return row(name, bytes_text(s.at("mean").get<double>()),
                   fmt::format("{} {} to {}", note, bytes_text(s.at("min").get<double>()),
                               bytes_text(s.at("max").get<double>())));
    };
    std::string text =
        fmt::format("{} · {:.3g} parameters in {} tensors\n", r.at("shapes").get<std::string>(),
                    static_cast<double>(count("parameters")), count("tensors"));
    text += fmt::format("trainer: {} ranks, mesh {} {}, {}", count("source_ranks"), mesh,
                        r.at("placements").get<std::string>(), r.at("source_dtype").get<std::string>());
    if (!r.at("expert_mesh").empty()) {
        text += ", experts on " + mesh_text(r.at("expert_mesh"));
    }
    text += fmt::format("\nengine: {} ranks, tp {}, ep {}, {}{}\n\n", count("engine_ranks"),
                        count("engine_tp"), count("engine_ep"), r.at("engine_dtype").get<std::string>(),
                        r.at("fused").get<bool>() ? ", fused" : "");
    text += row("plan", ms("plan_ms"), fmt::format("{} patterns of moves", count("patterns")));
    text +=
        row("expand", ms("expand_ms"), fmt::format("the {} moves to engine rank 0", count("expanded_moves")));
    text += row("moves", fmt::format("{}", count("moves")), "of all ranks");
    text += row("bytes", bytes_text(static_cast<double>(count("bytes"))), "what all engine ranks keep, once");
    text += spread_row("to a rank", "bytes_to", "mean; from");
    text += spread_row("from a rank", "bytes_from", "mean; from");
    text +=
        row("balance", fmt::format("{:.4f}", r.at("balance").get<double>()), "busiest trainer rank / mean");
    return text;
}

}  // namespace tandem::sync
