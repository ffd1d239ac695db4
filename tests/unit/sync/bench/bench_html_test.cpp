// The bench's page and the sweep's table, from sample results: all parts there, those without data left out,
// text escaped.
#include "sync/bench/html.h"

#include <gmock/gmock.h>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "sync/bench/sweep_grid.h"
#include "sync/bench/sweep_table.h"
#include "tests/support/html.h"

namespace tandem::sync {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::Not;

json sample() {
    return json::parse(R"({
        "shapes": "Qwen3-<0.6>B", "mode": "gather", "mesh": [2, 2], "engine_tp": 1, "changed": 1.0,
        "source_dtype": "bfloat16", "engine_dtype": "bfloat16", "iterations": 15, "bytes": 1192099840,
        "bytes_moved": 1192099840, "buckets": 285, "bucket_bytes": 4194304, "depth": 3, "median_ms": 121.4,
        "min_ms": 112.8, "p95_ms": 139.2, "gbps": 9.82, "copy_gbps": 21.7, "speed_of_light_ms": 54.9,
        "speed_of_light_ratio": 2.21, "prepared_ratio": 2.34, "staging_peak_bytes": 12582912,
        "staging_cap_bytes": 12582912, "steady_state_allocations": 0, "verified": true,
        "hardware": "Xeon & Co, 2 cores",
        "phase_ms": {"prepare": 7.1, "pause": 0.8, "gather": 112.5, "copy": 89.3, "load": 6.4, "resume": 0.3,
                     "finish": 0.4, "pack": 21.5}
    })");
}

json whole() {
    json result = sample();
    result["predicted_ms"] = 115.0;
    result["totals_ms"] = {121.4, 119.0, 139.2, 112.8, 118.5, 123.3, 131.0, 120.7,
                           121.9, 116.2, 125.5, 122.1, 119.9, 127.8, 118.8};
    for (const int depth : {2, 3, 4}) {
        for (int i = 0; i < 8; ++i) {
            const double bucket = std::exp2(20 + i);
            const double ratio =
                1.9 + 1.1 / std::exp2(i) + 0.06 * (i > 3 ? (i - 3) * (i - 3) : 0) - 0.1 * depth;
            result["sweep"].push_back(
                {{"bucket_bytes", bucket},
                 {"depth", depth},
                 {"push_ms", ratio * 55},
                 {"push_ratio", ratio},
                 {"speed_of_light_ratio", ratio - 0.1},
                 {"predicted_push_ms", 55 * (1.8 + 1.4 / std::exp2(i) - 0.08 * depth)}});
        }
    }
    return result;
}

TEST(BenchHtml, ShowsEveryPartOfAWholeResult) {
    const std::string html = bench_html(whole());
    EXPECT_EQ(unbalanced(html), "");
    for (const char* part : {"Weight sync: Qwen3-&lt;0.6&gt;B, gather",
                             "mesh 2,2 · bfloat16 → bfloat16",
                             "Xeon &amp; Co, 2 cores",
                             "2.21 ×",
                             "121.4 ms",
                             "p95 139.2 ms",
                             "one copy of 1.11 GiB at 21.7 GB/s",

                             "285 buckets of 4 MiB, depth 3; 9.8 GB/s of weights",
                             "peak; cap 12 MiB; no allocations later",
                             "measured +6% of it",
                             "2.34 with prepare",
                             "first and last sync, every byte",
                             "One sync",
                             ">finish<",
                             "21.5 ms",
                             "Every sync",
                             "Distribution",
                             "Measured and possible",
                             "Ratio over bucket size",
                             "dashed: what the cost model predicted",
                             "<table>",
                             "as JSON",
                             "&quot;staging_cap_bytes&quot;: 12582912"}) {
        EXPECT_THAT(html, HasSubstr(part));
    }
    for (const char* wrong : {"<0.6>", "http://", "https://", "<script", "<link", "src=", "url(", "nan",
                              "inf ", "DIFFER", "EXCEEDED"})
        EXPECT_THAT(html, Not(HasSubstr(wrong)));
    if (const char* keep = std::getenv("TANDEM_KEEP_REPORT")) std::ofstream(keep) << html;
}

TEST(BenchHtml, LeavesOutWhatWasNotMeasured) {
    const std::string html = bench_html(sample());
    EXPECT_EQ(unbalanced(html), "");
    EXPECT_THAT(html, HasSubstr("One sync"));
    EXPECT_THAT(html, HasSubstr("Measured and possible"));
    for (const char* part :
         {"Every sync", "Distribution", "redicted", "Bucket sizes and depths", "nothing was"})
        EXPECT_THAT(html, Not(HasSubstr(part)));
    json least = sample();
    for (const char* key : {"prepared_ratio", "min_ms", "buckets", "engine_tp", "changed"}) least.erase(key);
    EXPECT_THAT(bench_html(least), testing::AllOf(Not(HasSubstr("with prepare")), Not(HasSubstr("least"))));
}

TEST(BenchHtml, TellsWhatIsWrong) {
    json result = whole();
    result["verified"] = false;
    result["staging_peak_bytes"] = 12582913;
    result["steady_state_allocations"] = 3;
    const std::string html = bench_html(result);
    for (const char* part : {"engine and trainer DIFFER", ": EXCEEDED", "; 3 allocations later",
                             "<div class='tile bad'><h3>Staging"})
        EXPECT_THAT(html, HasSubstr(part));
}

TEST(BenchHtml, TellsTheModesApart) {
    json result = sample();
    result["mode"] = "delta";
    result["changed"] = 0.01;
    result["engine_tp"] = 4;
    result["link_gbps"] = 1;
    EXPECT_THAT(bench_html(result), HasSubstr("engine TP 4 · 1% changed · link 1 GB/s"));
    // A flip of a version: next to nothing on the time line, and still a page.
    result["mode"] = "alias";
    result["median_ms"] = 0.4;
    result["phase_ms"] = {{"prepare", 60}, {"pause", 0.2}, {"gather", 0},
                          {"copy", 0},     {"load", 0.1},  {"resume", 0.1}};
    result["bytes_moved"] = result["staging_cap_bytes"] = result["staging_peak_bytes"] = 0;
    result["speed_of_light_ratio"] = 0.0073;
    const std::string html = bench_html(result);
    EXPECT_EQ(unbalanced(html), "");
    for (const char* part : {"0.0073 ×", "0.40 ms", "the engine turns to other memory"})
        EXPECT_THAT(html, HasSubstr(part));
    for (const char* part : {"Memory</h2>", ">gather</text>", "GB/s of weights"})
        EXPECT_THAT(html, Not(HasSubstr(part)));
}

TEST(SweepTable, MarksTheBestCell) {
    json result;
    EXPECT_EQ(sweep_table(result), "");
    const auto add = [&](double bytes, int depth, double ratio) {
        result["sweep"].push_back({{"bucket_bytes", bytes},
                                   {"depth", depth},
                                   {"push_ms", 10 * ratio},
                                   {"push_ratio", ratio},
                                   {"speed_of_light_ratio", ratio / 2}});
    };
    add(1 << 20, 2, 2.104);
    add(16 << 20, 4, 1.5);
    add(16 << 20, 2, 1.25);
    EXPECT_EQ(sweep_table(result),
              "whole pushes (prepare, and pause to resume) over the speed of light\n"
              "\n"
              "  bucket       depth 2   depth 4\n"
              "  1 MiB           2.10         -\n"
              "  16 MiB         *1.25      1.50\n"
              "\n"
              "* best: 16 MiB, depth 2, past the cache: 1.25 x, 12.50 ms, pause to resume 0.62 x\n");
    result["sweep"][2]["predicted_push_ms"] = 11;
    EXPECT_THAT(sweep_table(result), testing::EndsWith("0.62 x; predicted 11.00 ms\n"));
    result["sweep_chosen"] = result["sweep"][1];
    result["sweep_chosen"]["past_cache"] = false;
    result["sweep_cores"] = "apart";
    result["sweep_dropped"] = 3;
    EXPECT_THAT(sweep_table(result),
                testing::EndsWith("\nchosen 16 MiB, depth 4: 1.50 x, 15.00 ms\n"
                                  "best   16 MiB, depth 2, past the cache: 1.25 x, 12.50 ms\n"
                                  "20% off, cores: apart; 3 syncs dropped\n"));
}

TEST(SweepTable, FitsTheTerminal) {
    json result;
    for (int depth = 2; depth <= 20; ++depth) {
        result["sweep"].push_back({{"bucket_bytes", 1536e6},
                                   {"depth", depth},
                                   {"push_ms", 1e5},
                                   {"push_ratio", 1234.5 + depth},
                                   {"speed_of_light_ratio", 1234.5}});
    }
    std::istringstream lines(sweep_table(result));
    std::string all;
    for (std::string line; std::getline(lines, line); all += line) EXPECT_LE(line.size(), 100u);
    for (int depth = 2; depth <= 20; ++depth) EXPECT_THAT(all, HasSubstr("depth " + std::to_string(depth)));
    EXPECT_THAT(all, HasSubstr("*1236.50"));
}

TEST(SweepGrid, PredictsAgainstTheSameSpeedOfLight) {
    const SweepGrid grid(whole());
    ASSERT_EQ(grid.bucket_bytes().size(), 8u);
    EXPECT_EQ(grid.depths(), (std::vector<int>{2, 3, 4}));
    const SweepPoint* point = grid.at(1 << 20, 2);
    ASSERT_NE(point, nullptr);
    EXPECT_NEAR(point->predicted_ratio().value(), 1.8 + 1.4 - 0.16, 1e-9);
    EXPECT_EQ(grid.at(1 << 20, 5), nullptr);
    EXPECT_LE(grid.best().ratio, grid.worst().ratio);
}

}  // namespace
}  // namespace tandem::sync
