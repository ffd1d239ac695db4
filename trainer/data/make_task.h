// The task that a configuration asks for.
#pragma once

#include <memory>

#include "trainer/config/config.h"
#include "trainer/data/task.h"

namespace tandem::trainer {

// Throws ConfigError when the keys under [data] do not go together or what they name cannot be used.
std::unique_ptr<Task> make_task(const RunConfig& config, const config::Schema& schema);

}  // namespace tandem::trainer
