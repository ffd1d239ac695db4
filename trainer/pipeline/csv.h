// Schedules as CSV, in PyTorch's two formats (_dump_csv, _load_csv): a row a rank, a cell an action.
//   compute_only    F, I, W, B and overlaps; an empty cell is idle time and means nothing
//   compute_comms   with everything else that a rank does, taken as it stands; no empty cells
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "trainer/pipeline/schedule.h"

namespace tandem::pipeline {

enum class CsvFormat { compute_only, compute_comms };

// Ends lines as Python's csv module does. Idle time is not written.
std::string to_csv(const Schedule& schedule);

// Stages, their ranks and micro-batches are what the actions name. `format`: none: compute_comms where some action is not of
// compute_only. Throws ConfigError naming `file`, row and cell, both counted from 1; whether it can run is for check.h.
Schedule read_csv(std::string_view text, const std::string& file, std::optional<CsvFormat> format = {});
bool has_communication(const Schedule& schedule);

}  // namespace tandem::pipeline
