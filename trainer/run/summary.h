// summary.json: a run in one object, for people and for checks.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "trainer/loop/loop.h"

namespace tandem::trainer {

// What it says of the configuration; the task where the configuration names it.
nlohmann::ordered_json facts_of(const RunConfig& config);

nlohmann::ordered_json summary_of(const RunConfig& config, const LoopResult& result);

}  // namespace tandem::trainer
