// A sweep for a terminal.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace tandem::sync {

// Bucket sizes by depths, in each cell the ratio to the speed of light, the best with a star; at most 100
// columns. Empty where the result has no sweep.
std::string sweep_table(const nlohmann::json& result);

}  // namespace tandem::sync
