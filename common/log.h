// Logging to stderr, each line with the process's role ("rank 2", "engine") and made harmless (printable.h). Level
// from TANDEM_LOG (trace, debug, info, warn, error); default info. Safe to call from any thread. spdlog does the work,
// in log.cpp alone: its headers cost each source that reads them seconds.
#pragma once

#include <fmt/core.h>

#include <string>

namespace tandem {

enum class LogLevel { debug, info, warn, error, off };

// Call once in main. Not thread-safe against concurrent logging.
void set_up_logging(const std::string& role);

// Lines below `level` are not written from here on. Returns the level before.
LogLevel set_log_level(LogLevel level);

// Makes the logger if there is none yet, so that it outlives what calls this while it is made.
void make_log();

void log_line(LogLevel level, fmt::string_view format, fmt::format_args arguments);

template <typename... A>
void log_debug(fmt::format_string<A...> format, A&&... arguments) {
    log_line(LogLevel::debug, format, fmt::make_format_args(arguments...));
}
template <typename... A>
void log_info(fmt::format_string<A...> format, A&&... arguments) {
    log_line(LogLevel::info, format, fmt::make_format_args(arguments...));
}
template <typename... A>
void log_warn(fmt::format_string<A...> format, A&&... arguments) {
    log_line(LogLevel::warn, format, fmt::make_format_args(arguments...));
}
template <typename... A>
void log_error(fmt::format_string<A...> format, A&&... arguments) {
    log_line(LogLevel::error, format, fmt::make_format_args(arguments...));
}

}  // namespace tandem
