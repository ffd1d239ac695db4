// What an engine that somebody else has started must have in common with a run.
#pragma once

#include "engine_adapter/engine.h"
#include "trainer/config/config.h"

namespace tandem::trainer {

// Asks the tandem-engine at engine.url, before anything of the run is written. Throws ConfigError naming engine.url, key and
// both values: it computes another architecture, or takes fewer tokens than a prompt and its answer have. Nothing where
// there is no such URL, nobody answers (the ranks will tell), or it does not say. Blocks, for engine.deadline_s at most.
void check_engine(const RunConfig& config, const config::Schema& schema);

// Logs what may differ and should be known: an engine that does not say its architecture, another dtype.
void tell_differences(const RunConfig& config, const engine::Engine& engine);

}  // namespace tandem::trainer
