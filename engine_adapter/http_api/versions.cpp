#include "engine_adapter/http_api/versions.h"

#include <algorithm>
#include <cstdlib>
#include <sstream>

namespace tandem::engine {

std::array<int, 3> version_numbers(std::string_view version) {
    std::array<int, 3> numbers{};
    std::istringstream text{std::string(version)};
    char dot = 0;
    text >> numbers[0] >> dot >> numbers[1] >> dot >> numbers[2];
    return numbers;
}

std::string closest_known(std::string_view version, std::span<const std::string_view> known) {
    const std::array<int, 3> wanted = version_numbers(version);
    const auto distance = [&](std::string_view one) {
        const std::array<int, 3> numbers = version_numbers(one);
        return std::array{std::abs(numbers[0] - wanted[0]), std::abs(numbers[1] - wanted[1]),
                          std::abs(numbers[2] - wanted[2])};
    };
    const auto closest =
        std::min_element(known.begin(), known.end(),
                         [&](std::string_view a, std::string_view b) { return distance(a) < distance(b); });
    return distance(*closest) == std::array<int, 3>{} ? "" : std::string(*closest);
}

}  // namespace tandem::engine
