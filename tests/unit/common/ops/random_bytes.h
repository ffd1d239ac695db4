#pragma once

#include <cstddef>
#include <random>
#include <vector>

namespace tandem::testing {

inline std::vector<std::byte> random_bytes(std::mt19937& generator, std::size_t count) {
    std::vector<std::byte> result(count);
    for (std::byte& b : result) b = static_cast<std::byte>(generator());
    return result;
}

}  // namespace tandem::testing
