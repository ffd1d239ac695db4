// Logging through spdlog, to stderr, each line with the process's role ("rank 2", "engine").
// Level from TANDEM_LOG (trace, debug, info, warn, error); default info.
#pragma once

#include <spdlog/spdlog.h>

#include <string>

namespace tandem {

// Call once in main. Not thread-safe against concurrent logging.
void set_up_logging(const std::string& role);

}  // namespace tandem
