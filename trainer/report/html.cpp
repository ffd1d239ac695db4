#include "trainer/report/html.h"

#include <fmt/core.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "common/chart/chart.h"
#include "common/chart/page.h"
#include "common/chart/text.h"
#include "common/error.h"
#include "common/json_text.h"
#include "common/progress.h"
#include "common/text_file.h"
#include "trainer/report/pipeline_html.h"
#include "trainer/report/rollouts_html.h"

namespace tandem::trainer {
namespace {

using nlohmann::ordered_json;
using namespace chart;

// --- the parts of the page

double number_or_zero(const ordered_json& object, const char* key) {
    return object.value(key, 0.0);
}

std::string key_figures(const ordered_json& s) {
    const auto number = [&](const char* key) { return number_or_zero(s, key); };
    std::string out;
    if (s.contains("reward_last")) {
        out += tile("Sampled reward", fmt::format("{:.3f}", number("reward_last")),
                    fmt::format("from {:.3f}, held-out prompts", number("reward_first")), Tone::good);
    }
    out += tile("Greedy reward", fmt::format("{:.3f}", number("greedy_last")),
                fmt::format("from {:.3f}, held-out prompts", number("greedy_first")));
    if (s.contains("greedy_pass_at_1_last")) {
        out += tile("pass@1", fmt::format("{:.1f}%", 100 * number("greedy_pass_at_1_last")),
                    fmt::format("from {:.1f}%, greedy, held out", 100 * number("greedy_pass_at_1_first")),
                    Tone::good);
    }
    const bool unfinished = s.contains("unfinished");
    const ordered_json match = s.value("weights_match", ordered_json(false));  // null: the engine cannot say
    out += tile("Weight version", fmt::format("{}", s.value("weight_version", 0)),
                unfinished        ? "bytes are compared at the end"
                : match == true   ? "engine and trainer hold equal bytes"
                : match.is_null() ? "a third-party engine: its bytes are not compared"
                                  : "engine and trainer DIFFER",
                unfinished       ? Tone::plain
                : match == false ? Tone::bad
                : match == true  ? Tone::good
                                 : Tone::plain);
    out += tile("Weight sync", fmt::format("{:.1f} ms", number("sync_ms_median")), "median, pause to resume");
    out += tile("Log-prob diff", short_number(number("logprob_max_abs_diff")), "engine to trainer, largest");
    out += tile("Training tok/s", short_number(number("train_tokens_per_second")),
                fmt::format("{} sampled a second", short_number(number("generate_tokens_per_second"))));
    if (const auto skipped = s.value("skipped_steps", 0); skipped > 0)
        out += tile("Skipped", fmt::format("{}", skipped), "steps that were not finite", Tone::bad);
    if (s.contains("mfu")) {
        out += tile("Model FLOPs", fmt::format("{:.0f}%", 100 * number("mfu")),
                    fmt::format("of {} GFLOP/s of a product", short_number(number("product_gflops"))));
    }
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

std::string difference_chart(const ordered_json& summary, const Lines& metrics) {
    std::vector<Series> series = {
        {"largest", 5, points(metrics, "grpo", "/logprob_max_abs_diff"), Series::Style::line},
        {"mean", 2, points(metrics, "grpo", "/logprob_mean_abs_diff"), Series::Style::line}};
    return line_chart({"Log-prob difference",
                       number_or_zero(summary, "logprob_max_abs_diff") == 0
                           ? "engine and trainer agree to the last bit"
                           : "between engine and trainer, same tokens and weights",
                       "GRPO step", "nats", series, true, 0});
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

// --- the page

std::string report_html(const ordered_json& summary, const Lines& metrics, const Lines& samples,
                        const std::string& config, const ordered_json& pipeline) {
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
    if (summary.contains("unfinished")) {
        body +=
            fmt::format("<p><strong>This run has not ended</strong>: it has done {} of reinforcement.</p>\n",
                        escape_html(summary.value("unfinished", "")));
    }
    body += key_figures(summary);
    body +=
        section("Reinforcement",
                reward_chart(metrics) +
                    curve(metrics, "grpo",
                          {"/loss", "Policy loss", "loss", 0, true, "last update of each step", false}) +
                    curve(metrics, "grpo", {"/grad_norm", "Gradient norm", "norm before clipping", 3, true}) +
                    curve(metrics, "grpo", {"/lr", "Learning rate", "learning rate", 2}) +
                    curve(metrics, "grpo", {"/clip_fraction", "Clipped ratios", "share of tokens", 4, true}) +
                    difference_chart(summary, metrics) +
                    optional_curve(metrics, "grpo",
                                   {"/importance_mean", "Importance weight", "mean over tokens", 0, false,
                                    "trainer's probability over the engine's, truncated (loss.tis)", false}) +
                    optional_curve(metrics, "grpo",
                                   {"/importance_fraction", "Truncated weights", "share of tokens", 4}));
    if (const std::string charts = rollout_charts(metrics); !charts.empty())
        body += section("Rollouts", charts);
    body += samples_html(samples);
    body += section(
        "Weight sync",
        stack(metrics, "Where a sync's time goes",
              "as rank 0 sees it; pack: the engine's, at its first request with the version before",
              {{"prepare", "/sync_ms/prepare"},
               {"pause", "/sync_ms/pause"},
               {"gather", "/sync_ms/gather"},
               {"load", "/sync_ms/load"},
               {"resume", "/sync_ms/resume"},
               {"finish", "/sync_ms/finish"},
               {"pack", "/sync_ms/pack"}}) +
            stack(metrics, "Where a step's time goes", "",
                  {{"generate", "/generate_ms"}, {"train", "/train_ms"}, {"sync", "/sync_ms/total"}}));
    body +=
        section("Supervised warm start",
                curve(metrics, "sft", {"/loss", "Loss", "nats per answer token", 0, true}) +
                    curve(metrics, "sft", {"/grad_norm", "Gradient norm", "norm before clipping", 3, true}) +
                    curve(metrics, "sft", {"/lr", "Learning rate", "learning rate", 2}));
    if (!pipeline.is_null()) body += section("Pipeline", pipeline_html(pipeline));
    body += section("Memory", memory_chart(metrics));
    body +=
        fmt::format("<h2>Configuration</h2><details><summary>config.toml</summary><pre>{}</pre></details>\n",
                    escape_html(config));
    return page(name, body);
}

namespace {

// --- from the files of a run

constexpr std::size_t kLargestRunFile = std::size_t{1} << 40;  // the samples of a long run

std::string text_of_run_file(const std::string& file) {
    if (!std::filesystem::exists(file))
        throw ConfigError(file, "", "cannot be read; is this the folder of a run?");
    return read_text_file(file, kLargestRunFile);
}

ordered_json parsed(const std::string& file, const std::string& text) {
    try {
        return parse_ordered_json_text(text, any_values(text));
    } catch (const BadInput& error) {
        throw ConfigError(file, "", error.what());
    }
}

// cut_short: somebody is, or was, in the middle of writing the last line.
Lines parsed_lines(const std::string& file, bool cut_short) {
    const std::string text = text_of_run_file(file);
    Lines lines;
    for (std::size_t start = 0; start < text.size();) {
        const std::size_t end = text.find('\n', start);
        if (end == std::string::npos && cut_short) break;
        lines.push_back(parsed(file, text.substr(start, end - start)));
        start = end == std::string::npos ? text.size() : end + 1;
    }
    return lines;
}

void write_page(const std::string& directory, const ordered_json& summary, const Lines& metrics,
                const Lines& samples) {
    const std::string config = text_of_run_file(directory + "/config.toml");
    const std::string stages = directory + "/" + kPipelineFile;
    const ordered_json pipeline =
        std::filesystem::exists(stages) ? parsed(stages, text_of_run_file(stages)) : ordered_json();
    std::ofstream out(directory + "/report.html");
    out << report_html(summary, metrics, samples, config, pipeline);
    if (!out.flush()) throw SystemError("write " + directory + "/report.html", errno);
}

// What summary.json would say of the steps so far.
void add_figures(ordered_json& summary, const Lines& metrics) {
    std::vector<double> syncs;
    double largest = 0, milliseconds = 0;
    std::int64_t sft = 0, grpo = 0;
    for (const ordered_json& line : metrics) {
        const std::string phase = line.value("phase", "");
        milliseconds += line.value("ms", 0.0);
        if (phase == "sft") ++sft;
        if (phase == "eval") {
            const bool first = !summary.contains("greedy_first");
            for (const char* figure : {"reward", "greedy", "greedy_pass_at_1"}) {
                if (!line.contains(figure)) continue;
                if (first) summary[fmt::format("{}_first", figure)] = line.at(figure);
                summary[fmt::format("{}_last", figure)] = line.at(figure);
            }
        }
        if (phase != "grpo") continue;
        ++grpo;
        largest = std::max(largest, line.value("logprob_max_abs_diff", 0.0));
        syncs.push_back(line.value(ordered_json::json_pointer("/sync_ms/total"), 0.0));
        for (const char* figure :
             {"weight_version", "train_tokens_per_second", "generate_tokens_per_second"}) {
            if (line.contains(figure)) summary[figure] = line.at(figure);
        }
    }
    std::sort(syncs.begin(), syncs.end());
    if (!syncs.empty()) summary["sync_ms_median"] = syncs[syncs.size() / 2];
    summary["logprob_max_abs_diff"] = largest;
    summary["seconds"] = milliseconds / 1e3;
    summary["sft_steps"] = sft;
    summary["steps"] = grpo;
}

}  // namespace

void write_report(const std::string& directory) {
    const std::string file = directory + "/summary.json";
    const ordered_json summary = parsed(file, text_of_run_file(file));
    const Lines metrics = parsed_lines(directory + "/metrics.jsonl", false);
    const std::string samples = directory + "/samples.jsonl";  // runs of earlier versions kept none
    write_page(directory, summary, metrics,
               std::filesystem::exists(samples) ? parsed_lines(samples, false) : Lines());
}

std::string write_unfinished_report(const std::string& directory, const ordered_json& facts,
                                    std::int64_t total_steps) {
    const auto lines_of = [&](const std::string& name) {
        const std::string file = directory + "/" + name;
        return std::filesystem::exists(file) ? parsed_lines(file, true) : Lines();
    };
    const Lines metrics = lines_of("metrics.jsonl");
    ordered_json summary = facts;
    add_figures(summary, metrics);
    const std::string so_far =
        fmt::format("{} of {} steps", summary.value("steps", std::int64_t{0}), total_steps);
    summary["unfinished"] = so_far;
    write_page(directory, summary, metrics, lines_of("samples.jsonl"));
    return so_far;
}

}  // namespace tandem::trainer
