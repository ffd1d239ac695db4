// For command lines: a number from `low` to `high`. CLI::Range lets NaN in, which is neither below nor above.
#pragma once

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <string>

namespace tandem {

inline CLI::Validator number_between(double low, double high) {
    const std::string range = fmt::format("{} - {}", low, high);
    return CLI::Validator(
        [low, high, range](std::string& text) -> std::string {
            double value = 0;
            if (CLI::detail::lexical_cast(text, value) && value >= low && value <= high) return {};
            return fmt::format("'{}' is not a number from {} to {}", text, low, high);
        },
        "FLOAT in [" + range + "]");
}

// Seconds that something may take: from a millisecond to 11 days.
inline CLI::Validator seconds() {
    return number_between(0.001, 1e6);
}

}  // namespace tandem
