// Charts of one metric over the steps of a run, from the lines of metrics.jsonl.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

namespace tandem::trainer {

using Lines = std::vector<nlohmann::ordered_json>;
using Points = std::vector<std::pair<double, double>>;

// The values of one metric of a phase, over its steps. `path` is a JSON pointer: "/sync_ms/gather".
Points points(const Lines& metrics, const std::string& phase, const std::string& path);

struct Curve {
    std::string path;
    std::string title;
    std::string unit;
    int color = 0;
    bool smooth = false;  // a faint line and a bold average of it
    std::string note = {};
    bool from_zero = true;
};
std::string curve(const Lines& metrics, const std::string& phase, const Curve& curve);
// The same, and nothing where the run has no such figures.
std::string optional_curve(const Lines& metrics, const std::string& phase, const Curve& curve);

// Metrics of phase "grpo" on top of one another, in milliseconds: label and path. Those that a line lacks are 0.
std::string stack(const Lines& metrics, const std::string& title, const std::string& note,
                  const std::vector<std::pair<std::string, std::string>>& parts);

}  // namespace tandem::trainer
