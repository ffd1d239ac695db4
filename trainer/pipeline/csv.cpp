#include "trainer/pipeline/csv.h"

#include <fmt/core.h>

#include <algorithm>

#include "common/error.h"

namespace tandem::pipeline {
namespace {

// Of what CSV files may quote, actions need nothing.
std::string_view without_quotes(std::string_view cell) {
    const bool quoted = cell.size() >= 2 && cell.front() == '"' && cell.back() == '"';
    return quoted ? cell.substr(1, cell.size() - 2) : cell;
}

ActionList read_row(std::string_view line, const std::string& file, std::size_t row,
                    std::optional<CsvFormat> format) {
    ActionList list;
    for (std::size_t cell = 1, at = 0; at <= line.size(); ++cell) {
        const std::size_t end = std::min(line.find(',', at), line.size());
        const std::string_view text = without_quotes(line.substr(at, end - at));
        const auto refuse = [&](const std::string& what) {
            throw ConfigError(file, fmt::format("row {}, cell {}", row, cell), what);
        };
        at = end + 1;
        if (text.find_first_not_of(" \t") == text.npos) {
            if (format == CsvFormat::compute_comms) refuse("is empty; only compute_only has idle time");
            continue;
        }
        try {
            list.push_back(parse_action(text));
        } catch (const BadInput& error) {
            refuse(error.what());
        }
        if (format == CsvFormat::compute_only && !is_compute(list.back().kind))
            refuse(fmt::format("{} is no compute action; the file is compute_comms", to_string(list.back())));
    }
    return list;
}

// Fills in stages and micro-batches.
void read_sizes(Schedule& schedule, const std::string& file) {
    for (std::size_t rank = 0; rank < schedule.ranks.size(); ++rank) {
        for (const Action& action : schedule.ranks[rank]) {
            for (const Action& part : parts_of(action)) {
                const auto stage = static_cast<std::size_t>(part.stage);
                if (stage >= schedule.rank_of_stage.size()) schedule.rank_of_stage.resize(stage + 1, -1);
                int& owner = schedule.rank_of_stage[stage];
                if (owner >= 0 && owner != static_cast<int>(rank))
                    throw ConfigError(
                        file, fmt::format("row {}", rank + 1),
                        fmt::format("{}: stage {} is row {}'s already", to_string(part), stage, owner + 1));
                owner = static_cast<int>(rank);
                schedule.microbatches = std::max(schedule.microbatches, part.microbatch + 1);
            }
        }
    }
}

}  // namespace

std::string to_csv(const Schedule& schedule) {
    std::string csv;
    for (const ActionList& list : schedule.ranks) {
        for (std::size_t i = 0; i < list.size(); ++i)
            csv.append(i == 0 ? "" : ",").append(to_string(list[i]));
        csv += "\r\n";
    }
    return csv;
}

Schedule read_csv(std::string_view text, const std::string& file, std::optional<CsvFormat> format) {
    Schedule schedule;
    std::string_view rest = text;
    for (std::size_t row = 1; !rest.empty(); ++row) {
        const std::size_t end = std::min(rest.find('\n'), rest.size());
        std::string_view line = rest.substr(0, end);
        rest.remove_prefix(std::min(end + 1, rest.size()));
        if (line.ends_with('\r')) line.remove_suffix(1);
        schedule.ranks.push_back(read_row(line, file, row, format));
        if (schedule.ranks.back().empty())
            throw ConfigError(file, fmt::format("row {}", row), "has no action; write one row a rank");
    }
    if (schedule.ranks.empty()) throw ConfigError(file, "", "is empty; write one row a rank, as in 0F0,0B0");
    if (!format && has_communication(schedule)) return read_csv(text, file, CsvFormat::compute_comms);
    read_sizes(schedule, file);
    return schedule;
}

bool has_communication(const Schedule& schedule) {
    return std::any_of(schedule.ranks.begin(), schedule.ranks.end(), [](const ActionList& list) {
        return std::any_of(list.begin(), list.end(),
                           [](const Action& action) { return !is_compute(action.kind); });
    });
}

}  // namespace tandem::pipeline
