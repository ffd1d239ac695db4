// What a test tells the ranks that it starts, by their environment.
#pragma once

#include <cstdlib>
#include <string>

#include "common/error.h"

namespace tandem::test {

// Throws when the test did not set it.
inline std::string setting(const char* name) {
    const char* value = std::getenv(name);
    require(value != nullptr, "the test did not set {}", name);
    return value;
}

}  // namespace tandem::test
