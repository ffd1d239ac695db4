// Versions of third-party servers, "0.32.0+cpu" or "0.5.15.post1": compared by their first three numbers.
#pragma once

#include <array>
#include <span>
#include <string>
#include <string_view>

namespace tandem::engine {

std::array<int, 3> version_numbers(std::string_view version);

// The known version that is closest to `version`, which is not among them; empty where it is.
std::string closest_known(std::string_view version, std::span<const std::string_view> known);

}  // namespace tandem::engine
