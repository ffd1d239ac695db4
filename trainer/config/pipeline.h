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

// Elements of the largest shard that any rank has.
std::int64_t largest_shard(const RunConfig& config, const model::ModelConfig& model);

}  // namespace tandem::trainer
