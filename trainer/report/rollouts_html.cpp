#include "trainer/report/rollouts_html.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdint>
#include <set>

#include "common/chart/chart.h"
#include "common/chart/text.h"

namespace tandem::trainer {
namespace {

using nlohmann::ordered_json;
using namespace chart;

constexpr std::size_t kStepsShown = 6;
constexpr std::size_t kLongestText = 1500;  // bytes of a cell

std::string length_chart(const Lines& metrics) {
    std::vector<Series> series = smoothed("mean", 0, points(metrics, "grpo", "/response_length_mean"), 0.8);
    series.push_back({"longest", 1, points(metrics, "grpo", "/response_length_max"), Series::Style::dashed});
    series.push_back(
        {"held out, greedy", 2, points(metrics, "eval", "/greedy_length_mean"), Series::Style::dots});
    if (series.front().points.empty()) return {};
    return line_chart({"Response length", "tokens of a completion", "GRPO step", "tokens", series, true, 0});
}

std::string share_chart(const Lines& metrics) {
    std::vector<Series> series = {
        {"truncated", 4, points(metrics, "grpo", "/truncated_fraction"), Series::Style::line},
        {"groups of equal rewards", 3, points(metrics, "grpo", "/groups_without_signal"),
         Series::Style::line}};
    if (series.front().points.empty()) return {};
    return line_chart({"Lost samples", "ended by max_new_tokens; groups that teach nothing", "GRPO step",
                       "share", series, true, 1});
}

std::string text_cell(const ordered_json& sample, const char* key) {
    std::string text = sample.value(key, "");
    if (text.size() > kLongestText) {
        std::size_t end = kLongestText;
        while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0u) == 0x80u)
            --end;  // whole characters
        text = text.substr(0, end) + " …";
    }
    return fmt::format("<td>{}</td>", escape_html(text));
}

std::string reward_cell(const ordered_json& sample) {
    // null: what was not finite when it was written
    const ordered_json& value = sample.contains("reward") ? sample["reward"] : ordered_json();
    if (!value.is_number()) return "<td>–</td>";
    const auto reward = value.get<double>();
    return fmt::format("<td class='{}'>{}</td>", reward > 0 ? "right" : "wrong", short_number(reward));
}

std::string texts_table(const std::string& header, const std::string& rows) {
    return "<div class='wide'><table class='texts'><thead><tr>" + header + "</tr></thead><tbody>" + rows +
           "</tbody></table></div>\n";
}

Lines of_step(const Lines& samples, const std::string& phase, std::int64_t step) {
    Lines result;
    for (const ordered_json& sample : samples) {
        if (sample.value("phase", "") == phase && sample.value("step", std::int64_t{-1}) == step)
            result.push_back(sample);
    }
    return result;
}

std::vector<std::int64_t> steps_of(const Lines& samples, const std::string& phase) {
    std::set<std::int64_t> steps;
    for (const ordered_json& sample : samples) {
        if (sample.value("phase", "") == phase) steps.insert(sample.value("step", std::int64_t{0}));
    }
    return {steps.begin(), steps.end()};
}

// The same held-out prompts at the first and at the last evaluation.
std::string before_and_after(const Lines& samples) {
    const auto steps = steps_of(samples, "eval");
    if (steps.empty()) return {};
    const Lines first = of_step(samples, "eval", steps.front());
    const Lines last = of_step(samples, "eval", steps.back());
    std::string rows;
    for (std::size_t i = 0; i < std::min(first.size(), last.size()); ++i) {
        rows += "<tr>" + text_cell(first[i], "prompt") + text_cell(first[i], "expected") +
                text_cell(first[i], "completion") + reward_cell(first[i]) + text_cell(last[i], "completion") +
                reward_cell(last[i]) + "</tr>";
    }
    return texts_table(
        fmt::format("<th>held-out prompt</th><th>expected</th><th>greedy after {} steps</th><th>reward</th>"
                    "<th>greedy after {} steps</th><th>reward</th>",
                    steps.front(), steps.back()),
        rows);
}

std::string step_details(const Lines& samples, std::int64_t step) {
    std::string rows;
    for (const ordered_json& sample : of_step(samples, "grpo", step)) {
        rows += "<tr>" + text_cell(sample, "prompt") + text_cell(sample, "expected") +
                text_cell(sample, "completion") + reward_cell(sample) + "</tr>";
    }
    return fmt::format(
        "<details><summary>Rollouts of step {}</summary>{}</details>\n", step,
        texts_table("<th>prompt</th><th>expected</th><th>completion</th><th>reward</th>", rows));
}

}  // namespace

std::string rollout_charts(const Lines& metrics) {
    return length_chart(metrics) +
           optional_curve(
               metrics, "grpo",
               {"/entropy", "Entropy", "nats", 2, true, "of the policy, mean over answer tokens"}) +
           optional_curve(
               metrics, "grpo",
               {"/kl", "KL to the rollouts' policy", "nats", 5, true, "k3 estimate, last update"}) +
           optional_curve(metrics, "grpo", {"/reference_kl", "KL to the reference", "nats", 4, true}) +
           share_chart(metrics) +
           optional_curve(metrics, "grpo",
                          {"/reward_std", "Spread of rewards", "standard deviation", 1, true}) +
           optional_curve(metrics, "grpo",
                          {"/train_tokens_per_second", "Training speed", "tokens/s", 0, true}) +
           optional_curve(metrics, "grpo",
                          {"/generate_tokens_per_second", "Generation speed", "tokens/s", 1, true}) +
           optional_curve(metrics, "grpo",
                          {"/mfu", "Model FLOPs utilisation", "share", 3, true,
                           "of the rate that one matrix product reached when the run began"});
}

std::string samples_html(const Lines& samples) {
    std::string html = before_and_after(samples);
    const auto steps = steps_of(samples, "grpo");
    const std::size_t shown = std::min(kStepsShown, steps.size());
    for (std::size_t k = 0; k < shown; ++k)
        html += step_details(samples, steps[shown == 1 ? 0 : k * (steps.size() - 1) / (shown - 1)]);
    return html.empty() ? "" : "<h2>What the model says</h2>\n" + html;
}

}  // namespace tandem::trainer
