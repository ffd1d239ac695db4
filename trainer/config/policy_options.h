// The policy's options as a run's configuration gives them.
#pragma once

#include "trainer/config/config.h"
#include "trainer/policy/options.h"

namespace tandem::trainer {

PolicyOptions policy_options(const RunConfig& config);

}  // namespace tandem::trainer
