#include "trainer/report/html.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "common/chart/chart.h"
#include "common/chart/page.h"
#include "common/chart/text.h"
#include "common/error.h"
#include "common/progress.h"

namespace tandem::trainer {
namespace {

using nlohmann::ordered_json;
using Lines = std::vector<ordered_json>;
using Points = std::vector<std::pair<double, double>>;
using namespace chart;

// The values of one metric of a phase, over its steps. `path` is a JSON pointer: "/sync_ms/gather".
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

double number_or_zero(const ordered_json& object, const char* key) {
    return object.value(key, 0.0);
}

std::string key_figures(const ordered_json& s) {
    const auto number = [&](const char* key) { return number_or_zero(s, key); };
    std::string out;
    out += tile("Sampled reward", fmt::format("{:.3f}", number("reward_last")),
                fmt::format("from {:.3f}, held-out prompts", number("reward_first")), Tone::good);
    out += tile("Greedy reward", fmt::format("{:.3f}", number("greedy_last")),
                fmt::format("from {:.3f}", number("greedy_first")));
    const bool match = s.value("weights_match", false);
    out += tile("Weight version", fmt::format("{}", s.value("weight_version", 0)),
                match ? "engine and trainer hold equal bytes" : "engine and trainer DIFFER",
                match ? Tone::good : Tone::bad);
    out += tile("Weight sync", fmt::format("{:.1f} ms", number("sync_ms_median")), "median, pause to resume");
    out += tile("Log-prob diff", short_number(number("logprob_max_abs_diff")), "engine to trainer, largest");
    out += tile("Training tok/s", short_number(number("train_tokens_per_second")),
                fmt::format("{} sampled a second", short_number(number("generate_tokens_per_second"))));
    out += tile("Time", format_seconds(number("seconds")),
                fmt::format("{} + {} steps", s.value("sft_steps", 0), s.value("steps", 0)));
    return tiles(out);
}

std::string reward_chart(const Lines& metrics) {
    auto series = smoothed("rollouts", 0, points(metrics, "grpo", "/reward"), 0.8);
    series.push_back({"held out, sampled", 1, points(metrics, "eval", "/reward"), Series::Style::dots});
    series.push_back({"held out, greedy", 2, points(metrics, "eval", "/greedy"), Series::Style::dots});
    return line_chart({"Reward", "share of exactly right answers", "GRPO step", "reward", series, true, 1});
}

std::string curve(const Lines& metrics, const std::string& phase, const std::string& path,
                  const std::string& title, const std::string& unit, int color, bool smooth,
                  const std::string& note = {}) {
    const Points values = points(metrics, phase, path);
    const auto series = smooth ? smoothed("", color, values, 0.8)
                               : std::vector<Series>{{"", color, values, Series::Style::line}};
    const bool from_zero = path != "/loss" || phase == "sft";
    return line_chart(
        {title, note, phase == "sft" ? "warm-start step" : "GRPO step", unit, series, from_zero, 0});
}

std::string stack(const Lines& metrics, const std::string& title, const std::string& note,
                  const std::vector<std::pair<std::string, std::string>>& parts) {
    Chart chart{title, note, "GRPO step", "ms", {}, true, 0};
    int color = 0;
    for (const auto& [label, path] : parts)
        chart.series.push_back({label, color++, points(metrics, "grpo", path)});
    return stacked_chart(chart);
}

std::string memory_chart(const Lines& metrics) {
    std::vector<Bar> bars;
    for (auto line = metrics.rbegin(); line != metrics.rend() && bars.empty(); ++line) {
        if (!line->contains("memory_peak_bytes")) continue;
        for (const auto& [tag, bytes] : line->at("memory_peak_bytes").items()) {
            const auto value = bytes.get<double>();
            if (value > 0) bars.push_back({tag, value, bytes_text(value)});
        }
    }
    std::sort(bars.begin(), bars.end(), [](const Bar& a, const Bar& b) { return a.value > b.value; });
    return bar_chart("Memory peaks by tag", "rank 0", bars);
}

}  // namespace

std::string report_html(const ordered_json& summary, const Lines& metrics, const std::string& config) {
    const std::string name = summary.value("name", "run");
    std::string mesh;
    const ordered_json axes = summary.value("mesh", ordered_json::object());
    for (const auto& [axis, size] : axes.items()) {
        mesh += fmt::format("{}{} {}", mesh.empty() ? "" : " × ", axis, size.dump());
    }
    std::string body = fmt::format(
        "<header><h1>{}</h1><p>{} trainer ranks ({}) · task {} · seed {} · Tandem {}</p></header>\n",
        escape_html(name), summary.value("world_size", 1), escape_html(mesh),
        escape_html(summary.value("task", "?")), summary.value("seed", 0),
        escape_html(summary.value("version", "?")));
    body += key_figures(summary);
    body += section(
        "Reinforcement",
        reward_chart(metrics) +
            curve(metrics, "grpo", "/loss", "Policy loss", "loss", 0, true, "last update of each step") +
            curve(metrics, "grpo", "/grad_norm", "Gradient norm", "norm before clipping", 3, true) +
            curve(metrics, "grpo", "/lr", "Learning rate", "learning rate", 2, false) +
            curve(metrics, "grpo", "/clip_fraction", "Clipped ratios", "share of tokens", 4, true) +
            curve(metrics, "grpo", "/logprob_max_abs_diff", "Log-prob difference", "nats", 5, false,
                  number_or_zero(summary, "logprob_max_abs_diff") == 0
                      ? "engine and trainer agree to the last bit"
                      : "largest between engine and trainer, same tokens and weights"));
    body += section(
        "Weight sync",
        stack(metrics, "Where a sync's time goes", "as rank 0 sees it; the phases overlap",
              {{"pause", "/sync_ms/pause"},
               {"gather", "/sync_ms/gather"},
               {"copy", "/sync_ms/copy"},
               {"load", "/sync_ms/load"},
               {"resume", "/sync_ms/resume"}}) +
            stack(metrics, "Where a step's time goes", "",
                  {{"generate", "/generate_ms"}, {"train", "/train_ms"}, {"sync", "/sync_ms/total"}}));
    body +=
        section("Supervised warm start",
                curve(metrics, "sft", "/loss", "Loss", "nats per answer token", 0, true) +
                    curve(metrics, "sft", "/grad_norm", "Gradient norm", "norm before clipping", 3, true) +
                    curve(metrics, "sft", "/lr", "Learning rate", "learning rate", 2, false));
    body += section("Memory", memory_chart(metrics));
    body +=
        fmt::format("<h2>Configuration</h2><details><summary>config.toml</summary><pre>{}</pre></details>\n",
                    escape_html(config));
    return page(name, body);
}

void write_report(const std::string& directory) {
    const auto read = [](const std::string& file) {
        std::ifstream in(file);
        if (!in) throw ConfigError(file, "", "cannot be read; is this the folder of a finished run?");
        return std::string(std::istreambuf_iterator<char>(in), {});
    };
    const auto parse = [](const std::string& file, const std::string& text) {
        try {
            return ordered_json::parse(text);
        } catch (const ordered_json::parse_error& error) {
            throw ConfigError(file, "", error.what());
        }
    };
    const ordered_json summary = parse(directory + "/summary.json", read(directory + "/summary.json"));
    Lines metrics;
    const std::string lines = read(directory + "/metrics.jsonl");
    for (std::size_t start = 0; start < lines.size();) {
        const std::size_t end = std::min(lines.find('\n', start), lines.size());
        metrics.push_back(parse(directory + "/metrics.jsonl", lines.substr(start, end - start)));
        start = end + 1;
    }
    std::ofstream out(directory + "/report.html");
    out << report_html(summary, metrics, read(directory + "/config.toml"));
    if (!out.flush()) throw ConfigError(directory + "/report.html", "", "cannot be written");
}

}  // namespace tandem::trainer
