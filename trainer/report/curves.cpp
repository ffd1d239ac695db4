#include "trainer/report/curves.h"

#include "common/chart/chart.h"

namespace tandem::trainer {

using nlohmann::ordered_json;
using namespace chart;

Points points(const Lines& metrics, const std::string& phase, const std::string& path) {
    const ordered_json::json_pointer pointer(path);
    Points result;
    for (const ordered_json& line : metrics) {
        if (line.value("phase", "") != phase || !line.contains(pointer) || !line.at(pointer).is_number())
            continue;
        result.emplace_back(line.at("step").get<double>(), line.at(pointer).get<double>());
    }
    return result;
}

std::string curve(const Lines& metrics, const std::string& phase, const Curve& c) {
    const Points values = points(metrics, phase, c.path);
    const auto series = c.smooth ? smoothed("", c.color, values, 0.8)
                                 : std::vector<Series>{{"", c.color, values, Series::Style::line}};
    return line_chart(
        {c.title, c.note, phase == "sft" ? "warm-start step" : "GRPO step", c.unit, series, c.from_zero, 0});
}

std::string optional_curve(const Lines& metrics, const std::string& phase, const Curve& c) {
    return points(metrics, phase, c.path).empty() ? "" : curve(metrics, phase, c);
}

std::string stack(const Lines& metrics, const std::string& title, const std::string& note,
                  const std::vector<std::pair<std::string, std::string>>& parts) {
    Chart chart{title, note, "GRPO step", "ms", {}, true, 0};
    for (const auto& [label, path] : parts)
        chart.series.push_back({label, static_cast<int>(chart.series.size()), {}});
    for (const ordered_json& line : metrics) {
        if (line.value("phase", "") != "grpo") continue;
        std::vector<double> values;
        bool any = false;
        for (const auto& [label, path] : parts) {
            const ordered_json::json_pointer pointer(path);
            const bool there = line.contains(pointer) && line.at(pointer).is_number();
            values.push_back(there ? line.at(pointer).get<double>() : 0.0);
            any = any || there;
        }
        for (std::size_t i = 0; any && i < values.size(); ++i)
            chart.series[i].points.emplace_back(line.at("step").get<double>(), values[i]);
    }
    return stacked_chart(chart);
}

}  // namespace tandem::trainer
