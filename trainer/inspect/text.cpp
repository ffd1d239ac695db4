#include "trainer/inspect/text.h"

#include <algorithm>
#include <charconv>
#include <string_view>

#include "common/error.h"

namespace tandem::inspect {
namespace {

std::vector<std::int64_t> parse_numbers(const std::string& option, const std::string& text,
                                        std::int64_t least, std::int64_t most) {
    std::string flat;
    for (const char c : text) {
        if (c != ' ') flat += c;
    }
    if (flat.size() >= 2 && flat.front() == '[' && flat.back() == ']') flat = flat.substr(1, flat.size() - 2);
    std::vector<std::int64_t> numbers;
    if (flat.empty()) return numbers;
    flat += ",";
    for (std::size_t at = 0; at < flat.size();) {
        const std::size_t comma = flat.find(',', at);
        const std::string_view word = std::string_view(flat).substr(at, comma - at);
        std::int64_t number = 0;
        const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), number);
        const bool whole = error == std::errc() && end == word.data() + word.size();
        enforce(whole && number >= least && number <= most,
                "{} {}: '{}' must be a number from {} to {}; write the list as in {} 4,2", option, text, word,
                least, most, option);
        numbers.push_back(number);
        at = comma + 1;
    }
    return numbers;
}

// Throws unless the product is at most `most`; a 0 counts as 1, so that no part of the product overflows.
void check_product(const std::string& option, const std::string& text,
                   const std::vector<std::int64_t>& numbers, std::int64_t most, const char* unit) {
    std::int64_t room = most;
    for (const std::int64_t number : numbers) room /= std::max<std::int64_t>(1, number);
    enforce(room >= 1, "{} {}: more than {} {}; choose smaller sizes", option, text, most, unit);
}

}  // namespace

Shape parse_shape(const std::string& option, const std::string& text) {
    constexpr std::int64_t kMostElements = std::int64_t{1} << 40;  // times ranks and bytes fits 64 bits
    const auto numbers = parse_numbers(option, text, 0, kMostElements);
    check_product(option, text, numbers, kMostElements, "elements");
    return {numbers.begin(), numbers.end()};
}

std::vector<int> parse_mesh(const std::string& option, const std::string& text) {
    const auto numbers = parse_numbers(option, text, 1, kMostRanks);
    enforce(!numbers.empty(), "{}: a mesh needs at least one axis, as in {} 2,2", option, option);
    check_product(option, text, numbers, kMostRanks, "ranks");
    return {numbers.begin(), numbers.end()};
}

std::vector<int> coordinates_of(int rank, const std::vector<int>& mesh_sizes) {
    std::vector<int> coordinates(mesh_sizes.size());
    for (std::size_t axis = mesh_sizes.size(); axis-- > 0;) {
        coordinates[axis] = rank % mesh_sizes[axis];
        rank /= mesh_sizes[axis];
    }
    return coordinates;
}

std::string fit(const std::vector<std::string>& words, const std::string& separator, std::size_t columns) {
    std::string all;
    for (const std::string& word : words) all.append(all.empty() ? "" : separator).append(word);
    if (all.size() <= columns) return all;
    std::string line;
    std::size_t taken = 0;
    for (; taken < words.size(); ++taken) {
        const std::string gap = taken == 0 ? "" : separator;
        const std::string rest = fmt::format("{}... +{}", separator, words.size() - taken - 1);
        if (line.size() + gap.size() + words[taken].size() + rest.size() > columns) break;
        line += gap + words[taken];
    }
    return fmt::format("{}{}... +{}", line, taken == 0 ? "" : separator, words.size() - taken);
}

std::string list_of(const Placements& placements, std::size_t columns) {
    std::vector<std::string> words;
    for (const Placement& placement : placements) words.push_back(to_string(placement));
    return fmt::format("[{}]", fit(words, ", ", columns - 2));
}

}  // namespace tandem::inspect
