#include "trainer/inspect/schedule.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "common/chart/text.h"
#include "common/text_file.h"
#include "trainer/inspect/text.h"
#include "trainer/pipeline/check.h"
#include "trainer/pipeline/csv.h"
#include "trainer/pipeline/draw.h"
#include "trainer/pipeline/lower.h"

namespace tandem::inspect {
namespace {

using pipeline::Schedule;

// A whole number without a point, as 57.
nlohmann::ordered_json number_of(double value) {
    if (value == std::floor(value) && std::abs(value) < 1e15) return static_cast<std::int64_t>(value);
    return value;
}

std::string summary_of(const ScheduleReport& report) {
    const pipeline::Timing& t = report.timing;
    return fmt::format("makespan {:.7g} = ideal {:.7g} + bubble {:.7g} ({:.1f}%)", t.makespan, t.ideal,
                       t.bubble, t.makespan > 0 ? 100 * t.bubble / t.makespan : 0);
}

double busy_time(const std::vector<pipeline::Interval>& intervals) {
    double busy = 0;
    for (const pipeline::Interval& interval : intervals) busy += interval.end - interval.start;
    return busy;
}

}  // namespace

ScheduleReport inspect_schedule(const ScheduleRequest& request) {
    const bool named = request.from_csv.empty();
    Schedule given = named ? pipeline::make_schedule(request.name, request.ranks, request.stages_per_rank,
                                                     request.microbatches)
                           : pipeline::read_csv(read_text_file(request.from_csv), request.from_csv);
    const Schedule compute = pipeline::compute_of(given);
    pipeline::check_compute(compute);
    const bool is_lowered = pipeline::has_communication(given);
    Schedule lowered = is_lowered ? std::move(given) : pipeline::lower(compute);
    pipeline::check_lowered(lowered, compute, request.channel_capacity);
    ScheduleReport report;
    report.title = fmt::format("{}: {} ranks, {} stages, {} micro-batches",
                               named ? pipeline::schedule_name(request.name) : "CSV", compute.ranks.size(),
                               compute.stages(), compute.microbatches);
    report.timing = request.times_file.empty()
                        ? pipeline::simulate(compute)
                        : pipeline::simulate(compute, pipeline::read_times(read_text_file(request.times_file),
                                                                           request.times_file, compute));
    report.lists = request.lowered ? std::move(lowered) : compute;
    return report;
}

nlohmann::ordered_json to_json(const ScheduleReport& report) {
    nlohmann::ordered_json ranks = nlohmann::ordered_json::array();
    for (const pipeline::ActionList& list : report.lists.ranks) {
        nlohmann::ordered_json texts = nlohmann::ordered_json::array();
        for (const pipeline::Action& action : list) texts.push_back(to_string(action));
        ranks.push_back(std::move(texts));
    }
    return {{"ranks", std::move(ranks)},
            {"makespan", number_of(report.timing.makespan)},
            {"bubble", number_of(report.timing.bubble)},
            {"peak", report.timing.peak}};
}

std::string to_text(const ScheduleReport& report) {
    constexpr std::size_t kRows = 40, kStageColumns = 14, kLeftColumns = 51;
    const std::vector<int>& rank_of_stage = report.lists.rank_of_stage;
    std::string text = fmt::format("{}\n{}\n\n", report.title, summary_of(report));
    text += fmt::format("{:>7}  {:<14}  {:>7}  {:>7}  {:>4}  {}\n", "rank", "stages", "busy", "idle", "peak",
                        "actions");
    const std::size_t rows = std::min(kRows, report.lists.ranks.size());
    for (std::size_t rank = 0; rank < rows; ++rank) {
        std::vector<std::string> stages, actions;
        for (std::size_t stage = 0; stage < rank_of_stage.size(); ++stage)
            if (rank_of_stage[stage] == static_cast<int>(rank)) stages.push_back(std::to_string(stage));
        for (const pipeline::Action& action : report.lists.ranks[rank]) actions.push_back(to_string(action));
        const double busy = busy_time(report.timing.ranks[rank]);
        text += fmt::format("{:>7}  {:<14}  {:>7}  {:>7}  {:>4}  {}\n", rank, fit(stages, " ", kStageColumns),
                            chart::short_number(busy), chart::short_number(report.timing.makespan - busy),
                            report.timing.peak[rank], fit(actions, " ", kColumns - kLeftColumns));
    }
    if (rows < report.lists.ranks.size())
        text +=
            fmt::format("{:>7}  {} more ranks; --json lists all\n", "...", report.lists.ranks.size() - rows);
    return text + "\npeak: most activations of a micro-batch and stage kept at once\n";
}

std::string to_svg(const ScheduleReport& report) {
    return pipeline::svg_of(report.timing, report.title + "; " + summary_of(report));
}

}  // namespace tandem::inspect
