// The policy's options as a run's configuration gives them.
#pragma once

#include <string>
#include <vector>

#include "trainer/config/config.h"
#include "trainer/policy/options.h"

namespace tandem::trainer {

PolicyOptions policy_options(const RunConfig& config);
// Of its mesh, a slice of ParallelDims::train_mesh.
std::vector<std::string> policy_axes(const RunConfig& config);

}  // namespace tandem::trainer
