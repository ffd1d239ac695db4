#include "trainer/inspect/mesh.h"

#include <fmt/core.h>

#include "common/error.h"
#include "trainer/inspect/text.h"

namespace tandem::inspect {

MeshReport inspect_mesh(const ParallelDegrees& degrees, int world_size,
                        const std::vector<std::string>& axes) {
    enforce(world_size <= kMostRanks, "world_size({}) must be at most {}", world_size, kMostRanks);
    const ParallelDims dims(degrees, world_size);
    MeshReport report;
    report.world_size = world_size;
    report.degrees = dims.degrees();
    for (const std::string& name : axes.empty() ? ParallelDims::axis_names() : axes) {
        const DeviceMesh& mesh = dims.axis_mesh(name);
        report.axes.push_back(
            {name, dims.axis_size(name), dims.axis_exists(name), mesh.groups(mesh.names()[0])});
    }
    report.fsdp_gradient_divide_factor = dims.fsdp_gradient_divide_factor();
    report.non_data_parallel_size = dims.non_data_parallel_size();
    report.seq_len_divisor = dims.seq_len_divisor();
    return report;
}

nlohmann::ordered_json to_json(const MeshReport& report) {
    nlohmann::ordered_json sizes = nlohmann::ordered_json::object();
    nlohmann::ordered_json exists = sizes, groups = sizes;
    for (const MeshReport::Axis& axis : report.axes) {
        sizes[axis.name] = axis.size;
        exists[axis.name] = axis.exists;
        groups[axis.name] = axis.groups;
    }
    return {{"sizes", std::move(sizes)},
            {"exists", std::move(exists)},
            {"groups", std::move(groups)},
            {"fsdp_gradient_divide_factor", report.fsdp_gradient_divide_factor},
            {"non_data_parallel_size", report.non_data_parallel_size},
            {"seq_len_divisor", report.seq_len_divisor}};
}

std::string to_text(const MeshReport& report) {
    constexpr std::size_t kLeftColumns = 39;
    constexpr std::size_t kGroupColumns = 34;  // so that a long group leaves room for a second one
    const ParallelDegrees& d = report.degrees;
    std::string text =
        fmt::format("{} ranks = pp {} x dp_replicate {} x dp_shard {} x cp {} x tp {}; ep {}, etp {}\n\n",
                    report.world_size, d.pp, d.dp_replicate, d.dp_shard, d.cp, d.tp, d.ep, d.etp);
    text += fmt::format("{:<12} {:>7}  {:<6} {:>7}  {}\n", "axis", "size", "exists", "groups", "ranks");
    for (const MeshReport::Axis& axis : report.axes) {
        std::vector<std::string> groups;
        for (std::size_t i = 0; i < axis.groups.size(); ++i) {
            // Entries that no longer fit the line are only counted.
            groups.push_back(i < kColumns ? list_of(axis.groups[i], kGroupColumns) : "");
        }
        text += fmt::format("{:<12} {:>7}  {:<6} {:>7}  {}\n", axis.name, axis.size,
                            axis.exists ? "yes" : "no", axis.groups.size(),
                            axis.size == 1 ? "each rank alone" : fit(groups, " ", kColumns - kLeftColumns));
    }
    text += fmt::format("\nFSDP gradient divide factor {}, non-data-parallel size {}, sequence divisor {}\n",
                        report.fsdp_gradient_divide_factor, report.non_data_parallel_size,
                        report.seq_len_divisor);
    return text;
}

}  // namespace tandem::inspect
