#include "common/log.h"

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <array>
#include <cstdlib>
#include <memory>
#include <utility>

#include "common/printable.h"

namespace tandem {
namespace {

constexpr std::array kLevels{
    std::pair{LogLevel::debug, spdlog::level::debug}, std::pair{LogLevel::info, spdlog::level::info},
    std::pair{LogLevel::warn, spdlog::level::warn}, std::pair{LogLevel::error, spdlog::level::err},
    std::pair{LogLevel::off, spdlog::level::off}};

spdlog::level::level_enum spdlog_level(LogLevel level) {
    for (const auto& [ours, theirs] : kLevels) {
        if (ours == level) return theirs;
    }
    return spdlog::level::off;
}

LogLevel log_level(spdlog::level::level_enum level) {
    for (const auto& [ours, theirs] : kLevels) {
        if (level <= theirs) return ours;  // trace: debug is the lowest that we write
    }
    return LogLevel::off;
}

}  // namespace

void set_up_logging(const std::string& role) {
    auto logger =
        std::make_shared<spdlog::logger>(role, std::make_shared<spdlog::sinks::stderr_color_sink_mt>());
    const char* level = std::getenv("TANDEM_LOG");
    logger->set_level(spdlog::level::from_str(level != nullptr ? level : "info"));
    logger->set_pattern("%H:%M:%S.%e %^%l%$ [%n] %v");
    spdlog::set_default_logger(std::move(logger));
}

LogLevel set_log_level(LogLevel level) {
    const LogLevel before = log_level(spdlog::get_level());
    spdlog::set_level(spdlog_level(level));
    return before;
}

void make_log() {
    spdlog::default_logger_raw();
}

void log_line(LogLevel level, fmt::string_view format, fmt::format_args arguments) {
    spdlog::logger* const logger = spdlog::default_logger_raw();
    if (!logger->should_log(spdlog_level(level))) return;
    logger->log(spdlog_level(level), printable(fmt::vformat(format, arguments)));
}

}  // namespace tandem
