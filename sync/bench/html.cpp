#include "sync/bench/html.h"

#include <fmt/core.h>

#include <cstdint>
#include <nlohmann/json.hpp>

#include "common/chart/page.h"
#include "common/chart/text.h"
#include "common/json_text.h"
#include "sync/bench/html_charts.h"
#include "sync/bench/trainer_mesh.h"

namespace tandem::sync {
namespace {

using chart::Tone;
using nlohmann::json;

std::string head(const json& r) {
    const auto text = [&](const char* key) { return r.value(key, std::string("?")); };
    std::string line =
        fmt::format("mesh {} · {} → {}", mesh_text(r.at("mesh")), text("source_dtype"), text("engine_dtype"));
    if (r.value("engine_tp", 1) > 1) line += fmt::format(" · engine TP {}", r.at("engine_tp").get<int>());
    if (text("mode") == "delta" && r.contains("changed"))
        line += fmt::format(" · {:.3g}% changed", 100 * r.at("changed").get<double>());
    if (r.contains("link_gbps")) line += fmt::format(" · link {:g} GB/s", r.at("link_gbps").get<double>());
    return fmt::format("<header><h1>Weight sync: {}, {}</h1><p>{}<br/>{}</p></header>\n",
                       chart::escape_html(text("shapes")), chart::escape_html(text("mode")),
                       chart::escape_html(line), chart::escape_html(text("hardware")));
}

std::string staging_tile(const json& r) {
    const double peak = r.at("staging_peak_bytes").get<double>(),
                 cap = r.at("staging_cap_bytes").get<double>();
    const auto allocations = r.at("steady_state_allocations").get<std::int64_t>();
    return chart::tile(
        "Staging", chart::bytes_text(peak),
        fmt::format("peak; cap {}{}; {} allocations later", chart::bytes_text(cap),
                    peak > cap ? ": EXCEEDED" : "", allocations == 0 ? "no" : std::to_string(allocations)),
        peak > cap || allocations > 0 ? Tone::bad : Tone::good);
}

std::string moved_tile(const json& r) {
    const double moved = r.at("bytes_moved").get<double>();
    const std::string value = chart::bytes_text(moved);
    if (moved == 0) return chart::tile("Moved", value, "the engine turns to other memory");
    const std::string count = r.contains("buckets") ? std::to_string(r.at("buckets").get<int>()) + " " : "";
    return chart::tile("Moved", value,
                       fmt::format("{}buckets of {}, depth {}; {:.1f} GB/s of weights", count,
                                   chart::bytes_text(r.at("bucket_bytes").get<double>()), r.value("depth", 0),
                                   r.at("gbps").get<double>()));
}

std::string prediction_tile(const json& r) {
    const double predicted = r.at("predicted_ms").get<double>(), measured = r.at("median_ms").get<double>();
    return chart::tile("Predicted", ms(predicted),
                       fmt::format("measured {:+.0f}% of it", 100 * (measured / predicted - 1)));
}

std::string key_figures(const json& r) {
    const auto number = [&](const char* key) { return r.at(key).get<double>(); };
    std::string ratio_note = "to the speed of light";
    if (r.contains("prepared_ratio"))
        ratio_note += fmt::format("; {:.2f} with prepare", number("prepared_ratio"));
    std::string out =
        chart::tile("Ratio", fmt::format("{:.3g} ×", number("speed_of_light_ratio")), ratio_note);
    out += chart::tile("Pause to resume", ms(number("median_ms")),
                       fmt::format("median of {}; p95 {}", r.value("iterations", 0), ms(number("p95_ms"))));
    out += chart::tile("Speed of light", ms(number("speed_of_light_ms")),
                       fmt::format("one copy of {} at {:.1f} GB/s", chart::bytes_text(number("bytes")),
                                   number("copy_gbps")));
    out += moved_tile(r);
    if (r.contains("predicted_ms")) out += prediction_tile(r);
    out += staging_tile(r);
    const bool verified = r.at("verified").get<bool>();
    out += chart::tile("Verified", verified ? "yes" : "NO",
                       verified ? "first and last sync, every byte" : "engine and trainer DIFFER",
                       verified ? Tone::good : Tone::bad);
    return chart::tiles(out);
}

}  // namespace

std::string bench_html(const json& result) {
    std::string body = head(result) + key_figures(result);
    std::string time = phase_chart(result);
    if (result.contains("totals_ms") && !result.at("totals_ms").empty())
        time += iterations_chart(result) + distribution_chart(result);
    body += chart::section("Where the time goes", time + comparison_chart(result));
    if (const std::string sweep = sweep_charts(result); !sweep.empty())
        body += chart::section("Bucket sizes and depths", sweep);
    if (result.at("staging_cap_bytes").get<double>() > 0)
        body += chart::section("Memory", staging_chart(result));
    body += fmt::format("<h2>Result</h2><details><summary>as JSON</summary><pre>{}</pre></details>\n",
                        chart::escape_html(text_of_json(result, 2)));
    return chart::page(fmt::format("{} {} sync", result.value("shapes", std::string("?")),
                                   result.value("mode", std::string("?"))),
                       body);
}

}  // namespace tandem::sync
