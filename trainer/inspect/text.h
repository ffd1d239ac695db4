// Shared by the inspections: lists of numbers from the command line, and lines that fit a terminal.
#pragma once

#include <fmt/core.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "common/dtensor/placement.h"
#include "common/tensor/shape.h"

namespace tandem::inspect {

constexpr std::size_t kColumns = 100;         // no line of a table is longer
constexpr std::int64_t kMostRanks = 1 << 20;  // of a mesh that can be inspected

// "10,7" or "[10, 7]"; nothing, or "[]", is a scalar. Throw InvalidArgument that names `option` and says what
// would be right.
Shape parse_shape(const std::string& option, const std::string& text);
std::vector<int> parse_mesh(const std::string& option, const std::string& text);

// Row-major coordinates of a rank.
std::vector<int> coordinates_of(int rank, const std::vector<int>& mesh_sizes);

// As many of the words as fit into `columns`, joined by `separator`; the rest as "... +N".
std::string fit(const std::vector<std::string>& words, const std::string& separator, std::size_t columns);

template <typename Numbers>
std::string list_of(const Numbers& numbers, std::size_t columns = kColumns) {
    std::vector<std::string> words;
    for (const auto number : numbers) words.push_back(std::to_string(number));
    return fmt::format("[{}]", fit(words, ", ", columns - 2));
}

std::string list_of(const Placements& placements, std::size_t columns);

}  // namespace tandem::inspect
