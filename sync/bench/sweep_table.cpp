#include "sync/bench/sweep_table.h"

#include <fmt/core.h>

#include <algorithm>

#include "common/chart/text.h"
#include "sync/bench/sweep_grid.h"

namespace tandem::sync {
namespace {

constexpr std::size_t kDepthsAcross = 8;  // 12 + 8 · 10 columns

std::string block(const SweepGrid& grid, std::size_t first) {
    const auto begin = grid.depths().begin() + static_cast<std::ptrdiff_t>(first);
    const std::vector<int> depths(
        begin, begin + static_cast<std::ptrdiff_t>(std::min(kDepthsAcross, grid.depths().size() - first)));
    std::string text = fmt::format("  {:<10}", "bucket");
    for (const int depth : depths) text += fmt::format("{:>10}", fmt::format("depth {}", depth));
    text += "\n";
    for (const double bytes : grid.bucket_bytes()) {
        text += fmt::format("  {:<10}", chart::bytes_text(bytes));
        for (const int depth : depths) {
            const SweepPoint* point = grid.at(bytes, depth);
            const char* star = point == &grid.best() ? "*" : "";
            text +=
                fmt::format("{:>10}", point == nullptr ? "-" : fmt::format("{}{:.2f}", star, point->ratio));
        }
        text += "\n";
    }
    return text;
}

std::string point_text(const SweepPoint& point) {
    return fmt::format("{}, depth {}{}: {:.2f} x, {:.2f} ms", chart::bytes_text(point.bucket_bytes),
                       point.depth, point.past_cache ? ", past the cache" : "", point.ratio, point.push_ms);
}

}  // namespace

std::string sweep_table(const nlohmann::json& result) {
    const SweepGrid grid(result);
    if (grid.empty()) return "";
    std::string text = "whole pushes (prepare, and pause to resume) over the speed of light\n\n";
    for (std::size_t first = 0; first < grid.depths().size(); first += kDepthsAcross)
        text += block(grid, first) + "\n";
    const SweepPoint& best = grid.best();
    text += fmt::format("* best: {}, pause to resume {:.2f} x", point_text(best), best.pause_ratio);
    if (best.predicted_ms) text += fmt::format("; predicted {:.2f} ms", *best.predicted_ms);
    text += "\n";
    if (!result.contains("sweep_chosen")) return text;
    const SweepPoint chosen = sweep_point(result.at("sweep_chosen"));
    return text + fmt::format("chosen {}\nbest   {}\n{:.0f}% off, cores: {}; {} syncs dropped\n",
                              point_text(chosen), point_text(best), 100 * (chosen.ratio / best.ratio - 1),
                              result.value("sweep_cores", "unknown"), result.value("sweep_dropped", 0));
}

}  // namespace tandem::sync
