// [checkpoint] against the disk.
#pragma once

#include <cstdint>

#include "common/model/model_config.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/config/config.h"

namespace tandem::trainer {

SaveOptions save_options(const RunConfig& config);  // of NAME/checkpoint

// Of one checkpoint to resume from, about.
std::uint64_t training_bytes(const RunConfig& config, const model::ModelConfig& model);

// Throws ConfigError, with the bytes that are needed and those that are there, when what the run will leave
// does not fit beside what is there already. Needs check_earlier_run before it; writes nothing.
void check_room(const RunConfig& config, const config::Schema& schema, const model::ModelConfig& model);

}  // namespace tandem::trainer
