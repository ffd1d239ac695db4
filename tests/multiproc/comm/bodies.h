// What ranks do in the multi-process tests: a check of the contract, or one of the bodies in bodies.cpp.
#pragma once

#include <string>
#include <vector>

#include "common/comm/launch.h"

namespace tandem::comm {

int run_body(const std::string& name);  // in the rank; returns its exit code

// In the test: options that start `world_size` ranks of this very binary.
LaunchOptions self_launch(int world_size, const std::string& body);

}  // namespace tandem::comm
