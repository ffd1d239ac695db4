#include "common/log.h"

#include <spdlog/sinks/stdout_color_sinks.h>

#include <cstdlib>
#include <memory>

namespace tandem {

void set_up_logging(const std::string& role) {
    auto logger =
        std::make_shared<spdlog::logger>(role, std::make_shared<spdlog::sinks::stderr_color_sink_mt>());
    const char* level = std::getenv("TANDEM_LOG");
    logger->set_level(spdlog::level::from_str(level != nullptr ? level : "info"));
    logger->set_pattern("%H:%M:%S.%e %^%l%$ [%n] %v");
    spdlog::set_default_logger(std::move(logger));
}

}  // namespace tandem
