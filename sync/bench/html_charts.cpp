#include "sync/bench/html_charts.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "common/chart/chart.h"
#include "common/chart/table.h"
#include "common/chart/text.h"
#include "common/chart/timeline.h"
#include "sync/bench/sweep_grid.h"

namespace tandem::sync {
namespace {

using chart::Series;
using nlohmann::json;
using Style = chart::Series::Style;

enum Color { kTransfer, kCopy, kLoad, kResume, kPause, kPrepare, kFinish, kPack };

Series level(const std::string& label, int color, double from, double to, double value) {
    return {label, color, {{from, value}, {to, value}}, Style::dashed};
}

chart::Chart sweep_lines(const SweepGrid& grid) {
    chart::Chart lines{
        "Ratio over bucket size", "", "bucket", "prepare and pause to resume ÷ speed of light", {}};
    lines.x_log2 = lines.x_bytes = true;
    for (std::size_t i = 0; i < grid.depths().size(); ++i) {
        const int color = static_cast<int>(i % 5);
        Series measured{fmt::format("depth {}", grid.depths()[i]), color, {}, Style::marked};
        Series predicted{"", color, {}, Style::dashed};
        for (const double bytes : grid.bucket_bytes()) {
            const SweepPoint* point = grid.at(bytes, grid.depths()[i]);
            if (point == nullptr) continue;
            measured.points.emplace_back(bytes, point->ratio);
            if (const auto ratio = point->predicted_ratio()) predicted.points.emplace_back(bytes, *ratio);
        }
        if (!predicted.points.empty()) lines.note = "dashed: what the cost model predicted";
        lines.series.push_back(std::move(predicted));
        lines.series.push_back(std::move(measured));
    }
    lines.series.push_back(
        level("speed of light", 5, grid.bucket_bytes().front(), grid.bucket_bytes().back(), 1));
    return lines;
}

chart::Cell heat_cell(const SweepGrid& grid, const SweepPoint* point) {
    if (point == nullptr) return {"–"};
    const double span = std::log(grid.worst().ratio / grid.best().ratio);
    const double heat = span > 0 ? std::log(point->ratio / grid.best().ratio) / span : 0;
    return {fmt::format("{:.2f} × · {}", point->ratio, ms(point->push_ms)), heat, point == &grid.best()};
}

chart::Table sweep_heat(const SweepGrid& grid) {
    const SweepPoint& best = grid.best();
    chart::Table table{"Sweep",
                       fmt::format("prepare and pause to resume: ratio and median; best: {}, depth {}",
                                   chart::bytes_text(best.bucket_bytes), best.depth),
                       {"bucket"},
                       {}};
    for (const int depth : grid.depths()) table.header.push_back(fmt::format("depth {}", depth));
    for (const double bytes : grid.bucket_bytes()) {
        std::vector<chart::Cell> row{{chart::bytes_text(bytes)}};
        for (const int depth : grid.depths()) row.push_back(heat_cell(grid, grid.at(bytes, depth)));
        table.rows.push_back(std::move(row));
    }
    return table;
}

}  // namespace

std::string ms(double value) {
    return fmt::format("{:.{}f} ms", value, value < 10 ? 2 : 1);
}

std::string phase_chart(const json& r) {
    const auto phase = [&](const char* name) { return r.at("phase_ms").value(name, 0.0); };
    const double total = r.at("median_ms").get<double>(), light = r.at("speed_of_light_ms").get<double>();
    const double prepare = phase("prepare"), pause = phase("pause"), resume = phase("resume");
    const double end = std::max(pause, total - resume);  // of what lies between pause and resume
    chart::Timeline timeline{
        "One sync", "medians of the phases; 0 is the pause; gather and copy overlap", "ms", {}, {}};
    timeline.rows.push_back({"sync",
                             ms(total),
                             {{"prepare", kPrepare, -prepare, prepare},
                              {"pause", kPause, 0, pause},
                              {"transfer", kTransfer, pause, end - pause},
                              {"resume", kResume, end, resume},
                              {"finish", kFinish, total, phase("finish")}}});
    const auto part = [&](const char* name, int color, double start) {
        if (phase(name) <= 0) return;
        timeline.rows.push_back({name, ms(phase(name)), {{name, color, start, phase(name)}}});
    };
    part("prepare", kPrepare, -prepare);
    part("pause", kPause, 0);
    part("gather", kTransfer, pause);
    // The engine's part ends with the transfer.
    part("copy", kCopy, std::max(pause, end - phase("copy")));
    part("load", kLoad, std::max(pause, end - phase("load")));
    part("resume", kResume, end);
    part("finish", kFinish, total);
    part("pack", kPack, total + phase("finish"));
    if (r.contains("predicted_ms")) {
        const auto predicted = r.at("predicted_ms").get<double>();
        timeline.rows.push_back({"predicted", ms(predicted), {{"predicted", kTransfer, 0, predicted, true}}});
    }
    timeline.rows.push_back({"speed of light", ms(light), {{"speed of light", kLoad, 0, light, true}}});
    timeline.marks = {light};
    return chart::timeline_chart(timeline);
}

std::string iterations_chart(const json& r) {
    const auto totals = r.at("totals_ms").get<std::vector<double>>();
    Series each{"a sync", kTransfer, {}, Style::dots};
    for (const double total : totals) each.points.emplace_back(each.points.size() + 1, total);
    const auto last = static_cast<double>(totals.size());
    chart::Chart picture{"Every sync", "pause to resume, in order", "iteration", "ms", {}};
    picture.x_whole = true;
    picture.series = {each, level("median", kTransfer, 1, last, r.at("median_ms").get<double>()),
                      level("p95", kCopy, 1, last, r.at("p95_ms").get<double>()),
                      level("speed of light", kLoad, 1, last, r.at("speed_of_light_ms").get<double>())};
    return chart::line_chart(picture);
}

std::string distribution_chart(const json& r) {
    auto totals = r.at("totals_ms").get<std::vector<double>>();
    std::sort(totals.begin(), totals.end());
    const auto count = static_cast<double>(totals.size());
    Series share{"syncs done within", kTransfer, {}, Style::line};  // steps
    for (std::size_t i = 0; i < totals.size(); ++i) {
        share.points.emplace_back(totals[i], static_cast<double>(i) / count);
        share.points.emplace_back(totals[i], static_cast<double>(i + 1) / count);
    }
    const auto light = r.at("speed_of_light_ms").get<double>();
    return chart::line_chart({"Distribution",
                              "share of the syncs that took at most so long",
                              "ms, pause to resume",
                              "share",
                              {share, {"speed of light", kLoad, {{light, 0}, {light, 1}}, Style::dashed}}});
}

std::string comparison_chart(const json& r) {
    const auto bar = [&](const char* label, const char* key, int color) {
        const auto value = r.at(key).get<double>();
        return chart::Bar{label, value, ms(value), color};
    };
    std::vector<chart::Bar> bars{bar("speed of light", "speed_of_light_ms", kLoad)};
    if (r.contains("predicted_ms")) bars.push_back(bar("predicted", "predicted_ms", kPrepare));
    if (r.contains("min_ms")) bars.push_back(bar("measured, least", "min_ms", kTransfer));
    bars.push_back(bar("measured, median", "median_ms", kTransfer));
    bars.push_back(bar("measured, p95", "p95_ms", kTransfer));
    return chart::bar_chart("Measured and possible", "pause to resume", bars);
}

std::string staging_chart(const json& r) {
    const auto bar = [&](const char* label, const char* key, int color) {
        const auto value = r.at(key).get<double>();
        return chart::Bar{label, value, chart::bytes_text(value), color};
    };
    return chart::bar_chart(
        "Staging", "the allocator's peak, and depth × bucket",
        {bar("peak", "staging_peak_bytes", kTransfer), bar("cap", "staging_cap_bytes", kLoad)});
}

std::string sweep_charts(const json& r) {
    const SweepGrid grid(r);
    return grid.empty() ? "" : chart::line_chart(sweep_lines(grid)) + chart::table_card(sweep_heat(grid));
}

}  // namespace tandem::sync
