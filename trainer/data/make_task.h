// The task that a configuration asks for.
#pragma once

#include <memory>
#include <string>

#include "trainer/config/config.h"
#include "trainer/data/task.h"

namespace tandem::trainer {

// Throws ConfigError when the keys under [data] do not go together or what they name cannot be used.
std::unique_ptr<Task> make_task(const RunConfig& config, const config::Schema& schema);

// Whose tokenizer and chat template a run of texts has: data.tokenizer, else model.path.
std::string tokenizer_directory(const RunConfig& config);
// Whose generation_config.json and config.json say how it ends: the same, or model.path where that one is a
// tokenizer alone.
std::string generation_directory(const RunConfig& config);

}  // namespace tandem::trainer
