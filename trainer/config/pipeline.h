// [pipeline] as the pipeline that it describes, and what follows from it.
#pragma once

#include <cstdint>
#include <optional>

#include "trainer/config/config.h"
#include "trainer/pipeline/plan.h"

namespace tandem::trainer {

// Throws ConfigError about pipeline.csv.
pipeline::Options pipeline_options(const RunConfig& config);
// None without mesh.pp. Throws as Plan does.
std::optional<pipeline::Plan> pipeline_plan(const RunConfig& config, const model::ModelConfig& model);
// Throws ConfigError at the key that is to blame.
void check_pipeline(const RunConfig& config, const config::Schema& schema, const model::ModelConfig& model);

// What to say to a user whose ranks have uneven work, by the products that a token takes part in: how uneven, and what
// pipeline.last_stage_less_layers would make it even. Empty where that would not help, or where the stages are told by other keys.
std::string uneven_stages(const RunConfig& config, const model::ModelConfig& model);

// Elements of the largest shard that any rank has.
std::int64_t largest_shard(const RunConfig& config, const model::ModelConfig& model);

}  // namespace tandem::trainer
