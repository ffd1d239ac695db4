// The report: a page that is well-formed and self-contained, the merged
// trace.
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <sstream>

#include "common/error.h"
#include "common/trace.h"
#include "tests/support/html.h"
#include "trainer/report/html.h"
#include "trainer/report/pipeline_html.h"
#include "trainer/report/recorder.h"
#include "trainer/report/trace_files.h"

namespace tandem::trainer {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;
using testing::HasSubstr;

struct Folder {
    Folder() : path(fs::temp_directory_path() / ("tandem_report_test." + std::to_string(getpid()))) {
        fs::remove_all(path);
        fs::create_directories(path);
    }
    ~Folder() { fs::remove_all(path); }
    std::string file(const std::string& name) const {
        std::ifstream in(path / name);
        return {std::istreambuf_iterator<char>(in), {}};
    }
    fs::path path;
};

// A run as the recorder writes it, with a little structure so that the page can be looked at.
void write_run(const Folder& folder) {
    Recorder recorder((folder.path / "metrics.jsonl").string());
    for (int i = 1; i <= 450; ++i) {
        recorder.step("sft", i, 450,
                      {{"loss", 0.6 + 2.0 * std::exp(-i / 60.0) + 0.03 * std::sin(i * 7.0)},
                       {"grad_norm", 0.4 + 0.2 * std::sin(i * 3.0)},
                       {"lr", 6e-3 * std::min(1.0, i / 20.0) * (0.55 + 0.45 * std::cos(i / 450.0 * 3.14))}});
    }
    recorder.step("eval", 0, 60, {{"reward", 0.41}, {"greedy", 0.35}});
    for (int i = 1; i <= 60; ++i) {
        recorder.step("grpo", i, 60,
                      {{"reward", 0.95 - 0.55 * std::exp(-i / 8.0) + 0.02 * std::sin(i * 5.0)},
                       {"loss", 0.01 * std::sin(i * 2.0)},
                       {"grad_norm", 0.5 + 0.3 * std::sin(i * 3.0)},
                       {"lr", 1e-3 * (1 - 0.015 * i)},
                       {"reward_std", 0.4 * std::exp(-i / 40.0)},
                       {"groups_without_signal", 0.3 + 0.005 * i},
                       {"response_length_mean", 2.4 + 0.2 * std::sin(i * 1.0)},
                       {"response_length_max", 3},
                       {"truncated_fraction", 0.2 * std::exp(-i / 10.0)},
                       {"entropy", 0.7 * std::exp(-i / 30.0)},
                       {"kl", 1e-3 * (1 + std::sin(i * 2.0))},
                       {"train_tokens_per_second", 40000 + 3000 * std::sin(i * 2.0)},
                       {"mfu", 0.3 + 0.02 * std::sin(i * 2.0)},
                       {"clip_fraction", 0.05 * std::exp(-i / 20.0)},
                       {"logprob_max_abs_diff", 1e-7 * (1 + std::sin(i * 1.0))},
                       {"generate_ms", 60 + 10 * std::sin(i * 2.0)},
                       {"train_ms", 150 + 20 * std::sin(i * 3.0)},
                       {"sync_ms",
                        {{"total", 9.0},
                         {"pause", 1.0 + 0.2 * std::sin(i * 1.0)},
                         {"gather", 3.0},
                         {"copy", 1.5},
                         {"load", 2.0},
                         {"resume", 0.5},
                         {"prepare", 1.5},
                         {"finish", 0.2},
                         {"pack", 4.0}}},
                       {"memory_peak_bytes", {{"params", 5e5}, {"activations", 3e6}, {"adamw", 8e5}}}});
    }
    recorder.step("eval", 60, 60, {{"reward", 0.94}, {"greedy", 0.98}});
    const auto said = [](const std::string& completion, double reward) {
        return ordered_json{
            {"prompt", "1+2<b>"}, {"completion", completion}, {"expected", "3."}, {"reward", reward}};
    };
    recorder.samples("eval", 0, {said("<script>4", 0)});
    recorder.samples("eval", 60, {said("3.", 1)});
    for (int i = 1; i <= 60; ++i)
        recorder.samples("grpo", i, {said("no text: \xff", 0), said(std::string(5000, 'x') + "end", 1)});
    std::ofstream(folder.path / "config.toml") << "[run]\nname = \"<b>&\"\n";
    std::ofstream(folder.path / "summary.json") << ordered_json{
        {"name", "quick<start>"},
        {"task", "sum4"},
        {"mesh", {{"dp", 2}, {"cp", 2}}},
        {"world_size", 4},
        {"steps", 60},
        {"sft_steps", 450},
        {"reward_first", 0.41},
        {"reward_last", 0.94},
        {"greedy_first", 0.35},
        {"greedy_last", 0.98},
        {"weight_version", 61},
        {"weights_match", true},
        {"sync_ms_median", 9.1},
        {"logprob_max_abs_diff", 2.4e-7},
        {"seconds", 63.0},
        {"version", "0.1.0"},
        {"train_tokens_per_second", 41234.0},
        {"generate_tokens_per_second", 18234.0}}.dump();
}

TEST(Report, IsOneWellFormedSelfContainedPage) {
    Folder folder;
    write_run(folder);
    write_report(folder.path.string());
    const std::string html = folder.file("report.html");
    EXPECT_EQ(unbalanced(html), "");
    EXPECT_THAT(html, HasSubstr("<h1>quick&lt;start&gt;</h1>"));
    EXPECT_THAT(html, HasSubstr("name = &quot;&lt;b&gt;&amp;&quot;"));
    EXPECT_THAT(html, HasSubstr("0.940"));
    EXPECT_THAT(html, HasSubstr("engine and trainer hold equal bytes"));
    for (const char* title :
         {"Reward", "Policy loss", "Gradient norm", "Learning rate", "Log-prob difference", "Response length",
          "Lost samples", "Entropy", "KL to the rollouts&#39; policy", "Model FLOPs utilisation",
          "Where a sync&#39;s time goes", "Memory peaks by tag", "Supervised warm start"}) {
        EXPECT_THAT(html, HasSubstr(title));
    }
    EXPECT_THAT(html,
                HasSubstr("<td>1+2&lt;b&gt;</td><td>3.</td><td>&lt;script&gt;4</td><td class='wrong'>0</td>"
                          "<td>3.</td><td class='right'>1</td>"));
    for (const char* step : {"Rollouts of step 1<", "Rollouts of step 60<"})
        EXPECT_THAT(html, HasSubstr(step));
    EXPECT_THAT(html, testing::Not(HasSubstr("xend")));  // long texts are cut
    EXPECT_THAT(html, testing::Not(HasSubstr("nothing was recorded")));
    EXPECT_THAT(html, testing::Not(HasSubstr("nan")));
    for (const char* outside : {"http://", "https://", "<script", "<link", "src="}) {
        EXPECT_THAT(html, testing::Not(HasSubstr(outside)));
    }
    if (const char* keep = std::getenv("TANDEM_KEEP_REPORT"))
        fs::copy_file(folder.path / "report.html", keep);
}

// An earlier version's run, and one that was resumed by this one: what a line lacks takes no time.
TEST(Report, PhasesThatALineDoesNotTellTakeNoTime) {
    const ordered_json before{{"phase", "grpo"}, {"step", 1}, {"sync_ms", {{"pause", 1.0}, {"gather", 3.0}}}};
    const ordered_json after{{"phase", "grpo"}, {"step", 2}, {"sync_ms", {{"pause", 2.0}, {"pack", 7.5}}}};
    using Lines = std::vector<ordered_json>;
    for (const Lines& metrics : {Lines{before}, Lines{before, after}}) {
        const std::string html = report_html({{"weights_match", true}}, metrics, {}, "");
        EXPECT_EQ(unbalanced(html), "");
        EXPECT_THAT(html, HasSubstr("GRPO step 1: pack 0 ms"));
    }
}

TEST(Report, OfARunWithoutMetricsAndOfNoRun) {
    const std::string html = report_html({{"weights_match", false}}, {}, {}, "");
    EXPECT_EQ(unbalanced(html), "");
    EXPECT_THAT(html, HasSubstr("nothing was recorded"));
    EXPECT_THAT(html, HasSubstr("DIFFER"));
    EXPECT_THAT(report_html({{"weights_match", nullptr}}, {}, {}, ""),
                HasSubstr("its bytes are not compared"));
    Folder folder;
    EXPECT_THROW(write_report(folder.path.string()), ConfigError);
    std::ofstream(folder.path / "summary.json") << "{";
    EXPECT_THROW(write_report(folder.path.string()), ConfigError);
}

TEST(Report, OfARunThatHasNotEndedSaysSo) {
    Folder folder;
    write_run(folder);
    fs::remove(folder.path / "summary.json");
    std::ofstream(folder.path / "metrics.jsonl", std::ios::app) << "{\"phase\": \"grpo\", \"st";
    EXPECT_EQ(write_unfinished_report(folder.path.string(), {{"name", "half"}}, 90), "60 of 90 steps");
    const std::string html = folder.file("report.html");
    EXPECT_EQ(unbalanced(html), "");
    EXPECT_THAT(html, HasSubstr("This run has not ended</strong>: it has done 60 of 90 steps"));
    EXPECT_THAT(html, HasSubstr("0.940"));
    EXPECT_THAT(html, testing::Not(HasSubstr("DIFFER")));
    for (const char* file : {"metrics.jsonl", "samples.jsonl"}) fs::remove(folder.path / file);
    EXPECT_EQ(write_unfinished_report(folder.path.string(), {{"name", "begun"}}, 90), "0 of 90 steps");
}

TEST(Recorder, WritesALineAStep) {
    Folder folder;
    write_run(folder);
    std::istringstream lines(folder.file("metrics.jsonl"));
    std::vector<ordered_json> all;
    for (std::string line; std::getline(lines, line);) all.push_back(ordered_json::parse(line));
    ASSERT_EQ(all.size(), 512u);
    EXPECT_EQ(all[0]["phase"], "sft");
    EXPECT_EQ(all[0]["step"], 1);
    EXPECT_EQ(all[511]["reward"], 0.94);
    EXPECT_THROW(Recorder("/nowhere/metrics.jsonl"), SystemError);
    Recorder silent;
    silent.step("sft", 1, 1, {});  // no file, nothing shown
}

TEST(TraceParts, MergeIntoOneFile) {
    Folder folder;
    trace::enable("rank 0", 0);
    { const trace::Scope scope("gather", "sync"); }
    write_trace_part(folder.path.string(), "rank0");
    { const trace::Scope scope("load", "sync"); }
    write_trace_part(folder.path.string(), "rank1");
    std::ofstream(folder.path / "trace.engine.json") << "cut sho";
    merge_trace_parts(folder.path.string());
    const auto merged = nlohmann::json::parse(folder.file("trace.json"));
    std::string names;
    for (const auto& event : merged["traceEvents"]) names += event["name"].get<std::string>() + " ";
    EXPECT_THAT(names, testing::AllOf(HasSubstr("gather"), HasSubstr("load")));
    EXPECT_EQ(std::distance(fs::directory_iterator(folder.path), {}), 1);
}

TEST(Report, ShowsThePipelineAsItRan) {
    using pipeline::ActionKind;
    const pipeline::Timing measured = pipeline::timing_of(
        {{{{ActionKind::forward, 0, 0}, 0, 2}, {{ActionKind::full_backward, 0, 0}, 7, 11}},
         {{{ActionKind::forward, 1, 0}, 3, 4}, {{ActionKind::full_backward, 1, 0}, 4, 6}}});
    const pipeline::Timing computed =
        pipeline::simulate(pipeline::make_schedule("GPipe", 2, 1, 1), pipeline::mean_times(measured, 2));
    const auto file = pipeline_json("GPipe", measured, computed);
    EXPECT_EQ(file["measured"]["ranks"][1][0]["action"], "1F0");
    const std::string page = report_html(ordered_json::object(), {}, {}, "", file);
    EXPECT_THAT(page, HasSubstr("Last update: 11.0 ms, of which the busiest rank waited 5.0 ms (45%)."));
    EXPECT_THAT(page, HasSubstr("9.0 ms and 3.0 ms (33%)"));
    EXPECT_THAT(page, HasSubstr("data:image/svg+xml,%3Csvg"));
    EXPECT_THAT(report_html(ordered_json::object(), {}, {}, ""), testing::Not(HasSubstr("Pipeline")));
    EXPECT_THROW(pipeline_html(ordered_json::parse("{\"schedule\": 3}")), BadInput);
    EXPECT_THROW(pipeline_html(ordered_json::parse("[]")), BadInput);
}

}  // namespace
}  // namespace tandem::trainer
