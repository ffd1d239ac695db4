// The pipeline's part of a run: what its ranks did in the last update, as a file and as a picture.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "trainer/pipeline/simulate.h"

namespace tandem::trainer {

inline constexpr const char* kPipelineFile = "pipeline.json";

// {"schedule", "measured": {"makespan_ms", "bubble_ms", "ranks": [[{"action": "0F1", "start_ms", "end_ms"}, …], …]},
// "computed": {"makespan_ms", "bubble_ms"}}
nlohmann::ordered_json pipeline_json(const std::string& schedule, const pipeline::Timing& measured,
                                     const pipeline::Timing& computed);

// Of such a file. Throws BadInput where it is none.
std::string pipeline_html(const nlohmann::ordered_json& file);

}  // namespace tandem::trainer
