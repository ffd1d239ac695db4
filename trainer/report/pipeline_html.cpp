#include "trainer/report/pipeline_html.h"

#include <fmt/core.h>

#include <nlohmann/json.hpp>
#include <vector>

#include "common/chart/page.h"
#include "common/chart/text.h"
#include "common/error.h"
#include "trainer/pipeline/draw.h"

namespace tandem::trainer {
namespace {

using nlohmann::ordered_json;

ordered_json lengths(const pipeline::Timing& timing) {
    return {{"makespan_ms", timing.makespan}, {"bubble_ms", timing.bubble}};
}

// As an image's address: its own style stays its own.
std::string as_address(const std::string& svg) {
    std::string address = "data:image/svg+xml,";
    for (const char c : svg) {
        const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                           std::string_view(" -_.!*()/:;=,").find(c) != std::string_view::npos;
        address += plain ? std::string(1, c) : fmt::format("%{:02X}", static_cast<unsigned char>(c));
    }
    return address;
}

double share(double part, double whole) {
    return whole > 0 ? 100 * part / whole : 0;
}

}  // namespace

ordered_json pipeline_json(const std::string& schedule, const pipeline::Timing& measured,
                           const pipeline::Timing& computed) {
    ordered_json ranks = ordered_json::array();
    for (const auto& intervals : measured.ranks) {
        ordered_json& rank = ranks.emplace_back(ordered_json::array());
        for (const pipeline::Interval& one : intervals)
            rank.push_back({{"action", to_string(one.action)}, {"start_ms", one.start}, {"end_ms", one.end}});
    }
    ordered_json file{
        {"schedule", schedule}, {"measured", lengths(measured)}, {"computed", lengths(computed)}};
    file["measured"]["ranks"] = std::move(ranks);
    return file;
}

std::string pipeline_html(const ordered_json& file) {
    pipeline::Timing timing;
    std::string schedule;
    double makespan = 0, bubble = 0;
    try {
        std::vector<std::vector<pipeline::Interval>> ranks;
        for (const ordered_json& rank : file.at("measured").at("ranks")) {
            auto& intervals = ranks.emplace_back();
            for (const ordered_json& one : rank)
                intervals.push_back({pipeline::parse_action(one.at("action").get<std::string>()),
                                     one.at("start_ms").get<double>(), one.at("end_ms").get<double>()});
        }
        timing = pipeline::timing_of(std::move(ranks));
        schedule = file.at("schedule").get<std::string>();
        makespan = file.at("computed").at("makespan_ms").get<double>();
        bubble = file.at("computed").at("bubble_ms").get<double>();
    } catch (const nlohmann::json::exception& error) {
        throw BadInput(fmt::format("{}: {}", kPipelineFile, error.what()));
    }
    if (timing.makespan <= 0) return "";
    const std::string picture = pipeline::svg_of(timing, schedule + ", the last update as it ran", "ms");
    return fmt::format(
        "<p>Last update: {:.1f} ms, of which the busiest rank waited {:.1f} ms ({:.0f}%). With free "
        "transfers, and each "
        "stage at its mean: {:.1f} ms and {:.1f} ms ({:.0f}%).</p>\n"
        "<div style='overflow-x:auto'><img alt='What each rank did, from left to right' src=\"{}\"></div>\n",
        timing.makespan, timing.bubble, share(timing.bubble, timing.makespan), makespan, bubble,
        share(bubble, makespan), as_address(picture));
}

}  // namespace tandem::trainer
