#include "trainer/inspect/redistribute.h"

#include <fmt/core.h>

#include <algorithm>

#include "trainer/inspect/text.h"

namespace tandem::inspect {

RedistributeReport inspect_redistribute(const Shape& shape, DType dtype, const std::vector<int>& mesh,
                                        const Placements& from, const Placements& to) {
    const int axes = static_cast<int>(mesh.size());
    const int dims = static_cast<int>(shape.size());
    RedistributeReport report;
    report.shape = shape;
    report.dtype = dtype;
    report.mesh = mesh;
    report.from = checked_placements(from, axes, dims);
    report.to = checked_placements(to, axes, dims);
    int ranks = 1;
    for (const int size : mesh) ranks *= size;
    report.bytes.resize(static_cast<std::size_t>(ranks));
    for (int rank = 0; rank < ranks; ++rank) {
        const std::vector<int> at = coordinates_of(rank, mesh);
        std::vector<RedistributeStep> steps = plan_redistribute(shape, mesh, at, report.from, report.to);
        std::erase_if(steps, [](const RedistributeStep& step) { return step.from == step.to; });
        if (rank == 0) {  // the same steps on every rank; only the bytes differ
            for (const RedistributeStep& step : steps)
                report.transforms.push_back({step.kind, step.axis, step.from, step.to, {}});
        }
        for (std::size_t i = 0; i < steps.size(); ++i) {
            const auto axis = static_cast<std::size_t>(steps[i].axis);
            report.transforms.at(i).bytes.push_back(
                steps[i].bytes_received(mesh[axis], at[axis], static_cast<std::int64_t>(dtype_size(dtype))));
            report.bytes[static_cast<std::size_t>(rank)] += report.transforms[i].bytes.back();
        }
    }
    return report;
}

nlohmann::ordered_json to_json(const RedistributeReport& report) {
    nlohmann::ordered_json transforms = nlohmann::ordered_json::array();
    for (const RedistributeReport::Transform& transform : report.transforms) {
        transforms.push_back({{"transform", to_string(transform.kind)},
                              {"axis", transform.axis},
                              {"from", to_string(transform.from)},
                              {"to", to_string(transform.to)},
                              {"bytes_per_rank", transform.bytes}});
    }
    return {{"transforms", std::move(transforms)}, {"bytes_per_rank", report.bytes}};
}

namespace {

// "84", or "60 to 84" when ranks differ.
std::string range_of(const std::vector<std::int64_t>& bytes) {
    const auto [least, most] = std::minmax_element(bytes.begin(), bytes.end());
    return *least == *most ? fmt::format("{}", *least) : fmt::format("{} to {}", *least, *most);
}

}  // namespace

std::string to_text(const RedistributeReport& report) {
    const auto row = [](const auto& step, const auto& axis, const auto& transform, const auto& from,
                        const auto& to, const auto& bytes) {
        return fmt::format("{:>4}  {:>4}  {:<14}  {:<14}  {:<14}  {:>36}\n", step, axis, transform, from, to,
                           bytes);
    };
    std::string text = fmt::format("shape {} {} on mesh {}\nfrom {}\nto   {}\n\n", list_of(report.shape, 50),
                                   dtype_name(report.dtype), list_of(report.mesh, 30),
                                   list_of(report.from, 90), list_of(report.to, 90));
    if (report.transforms.empty()) return text + "nothing to do\n";
    text += row("step", "axis", "transform", "from", "to", "bytes into each rank");
    for (std::size_t i = 0; i < report.transforms.size(); ++i) {
        const RedistributeReport::Transform& t = report.transforms[i];
        text += row(i + 1, t.axis, to_string(t.kind), to_string(t.from), to_string(t.to), range_of(t.bytes));
    }
    return text + row("", "", "all", "", "", range_of(report.bytes));
}

}  // namespace tandem::inspect
