#include "common/dtensor/placement.h"

#include <algorithm>
#include <charconv>
#include <cstddef>

#include "common/error.h"

namespace tandem {
namespace {

// --- as text

constexpr std::string_view kReduceNames[] = {"sum", "avg", "max", "min"};  // in the order of comm::ReduceOp
constexpr std::string_view kPlacementForms = "S(dim), SS(dim, split_factor), R, P(sum|avg|max|min)";

std::string without_spaces(std::string_view text) {
    std::string result;
    for (const char c : text) {
        if (c != ' ' && c != '\t') result += c;
    }
    return result;
}

int parse_int(std::string_view digits, std::string_view word) {
    int value = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    enforce(error == std::errc() && end == digits.data() + digits.size(),
            "placement '{}': '{}' is not a number", word, digits);
    return value;
}

Placement parse_placement(std::string_view word) {
    const std::size_t open = word.find('(');
    const std::string_view name = word.substr(0, open);
    std::string_view inside;
    if (open != std::string_view::npos) {
        enforce(word.back() == ')', "placement '{}' lacks its ')'; write one of {}", word, kPlacementForms);
        inside = word.substr(open + 1, word.size() - open - 2);
    }
    if (name == "R" && inside.empty()) return Replicate();
    if (name == "S") return Shard(parse_int(inside, word));
    const std::size_t comma = inside.find(',');
    if (name == "SS" && comma != std::string_view::npos) {
        return StridedShard(parse_int(inside.substr(0, comma), word),
                            parse_int(inside.substr(comma + 1), word));
    }
    if (name == "P") {
        if (open == std::string_view::npos) return Partial();
        const auto* const found = std::find(std::begin(kReduceNames), std::end(kReduceNames), inside);
        if (found != std::end(kReduceNames)) {
            return Partial(static_cast<comm::ReduceOp>(found - std::begin(kReduceNames)));
        }
    }
    throw BadInput(fmt::format("unknown placement '{}'; write one of {}", word, kPlacementForms));
}

}  // namespace

std::string to_string(const Placement& placement) {
    switch (placement.kind) {
        case Placement::Kind::replicate:
            return "R";
        case Placement::Kind::shard:
            return fmt::format("S({})", placement.dim);
        case Placement::Kind::strided_shard:
            return fmt::format("SS({}, {})", placement.dim, placement.split_factor);
        case Placement::Kind::partial:
            return fmt::format("P({})", kReduceNames[static_cast<int>(placement.reduce_op)]);
    }
    return "?";
}

std::string to_string(const Placements& placements) {
    std::string text;
    for (const Placement& placement : placements) text += (text.empty() ? "" : ", ") + to_string(placement);
    return "[" + text + "]";
}

Placements parse_placements(std::string_view text) {
    std::string flat = without_spaces(text);
    if (flat.size() >= 2 && flat.front() == '[' && flat.back() == ']') flat = flat.substr(1, flat.size() - 2);
    Placements result;
    std::string word;
    int depth = 0;
    for (const char c : flat + ",") {
        if (c == ',' && depth == 0) {
            enforce(!word.empty(), "empty placement in '{}'; write one of {}", text, kPlacementForms);
            result.push_back(parse_placement(word));
            word.clear();
            continue;
        }
        depth += c == '(' ? 1 : c == ')' ? -1 : 0;
        word += c;
    }
    enforce(word.empty(), "unbalanced parentheses in placements '{}'", text);
    return result;
}

// --- shards of one dim over one axis

Placements checked_placements(Placements placements, int mesh_ndim, int ndim) {
    require(static_cast<int>(placements.size()) == mesh_ndim, [&] {
        return fmt::format("{} placements {} for a mesh with {} axes: one for each axis", placements.size(),
                           to_string(placements), mesh_ndim);
    });
    for (Placement& placement : placements) {
        if (!placement.is_shard()) continue;
        require(placement.dim >= -ndim && placement.dim < ndim, [&] {
            return fmt::format("placement {} of a tensor with {} dims: dim must be in [{}, {}]",
                               to_string(placement), ndim, -ndim, ndim - 1);
        });
        if (placement.dim < 0) placement.dim += ndim;
        require(placement.split_factor >= 1, [&] {
            return fmt::format("placement {}: split factor must be at least 1", to_string(placement));
        });
    }
    return placements;
}

std::int64_t padded_shard_size(std::int64_t n, std::int64_t k) {
    return (n + k - 1) / k;
}

ShardRange shard_range(std::int64_t n, std::int64_t k, std::int64_t r) {
    const std::int64_t full = padded_shard_size(n, k);
    const std::int64_t start = std::min(n, full * r);
    return {std::min(n, start + full) - start, start};
}

namespace {

// What rank r of k holds of n elements, one visit(start, size) a piece; some are empty.
template <typename Visit>
void for_each_piece(const Placement& placement, std::int64_t n, std::int64_t k, std::int64_t r,
                    const Visit& visit) {
    if (!placement.is_shard()) return visit(0, n);
    const int factor = placement.kind == Placement::Kind::strided_shard ? placement.split_factor : 1;
    for (int j = 0; j < factor; ++j) {
        const ShardRange chunk = shard_range(n, factor, j);
        const ShardRange piece = shard_range(chunk.size, k, r);
        visit(chunk.offset + piece.offset, piece.size);
    }
}

}  // namespace

std::vector<Run> axis_runs(const Placement& placement, std::int64_t n, std::int64_t k, std::int64_t r) {
    std::vector<Run> runs;
    for_each_piece(placement, n, k, r, [&runs](std::int64_t start, std::int64_t size) {
        if (size == 0) return;
        if (!runs.empty() && runs.back().second == start) {
            runs.back().second = start + size;
        } else {
            runs.emplace_back(start, start + size);
        }
    });
    return runs;
}

std::int64_t axis_numel(const Placement& placement, std::int64_t n, std::int64_t k, std::int64_t r) {
    std::int64_t numel = 0;
    for_each_piece(placement, n, k, r, [&numel](std::int64_t, std::int64_t size) { numel += size; });
    return numel;
}

// --- runs: sorted, disjoint ranges of indices

std::int64_t total_size(const std::vector<Run>& runs) {
    std::int64_t size = 0;
    for (const auto& [start, stop] : runs) size += stop - start;
    return size;
}

std::int64_t index_at(const std::vector<Run>& runs, std::int64_t position) {
    for (const auto& [start, stop] : runs) {
        if (position < stop - start) return start + position;
        position -= stop - start;
    }
    throw InvalidArgument("a position behind the last index of a shard");
}

std::vector<Run> common_runs(const std::vector<Run>& a, const std::vector<Run>& b) {
    std::vector<Run> result;
    for (std::size_t i = 0, j = 0; i < a.size() && j < b.size();) {
        const std::int64_t start = std::max(a[i].first, b[j].first);
        const std::int64_t stop = std::min(a[i].second, b[j].second);
        if (start < stop) result.emplace_back(start, stop);
        if (a[i].second < b[j].second) {
            ++i;
        } else {
            ++j;
        }
    }
    return result;
}

std::vector<Run> positions_in(const std::vector<Run>& runs, const std::vector<Run>& part) {
    std::vector<Run> result;
    for (const auto& [start, stop] : part) {
        std::int64_t before = 0;
        for (const auto& [run_start, run_stop] : runs) {
            if (start >= run_start && stop <= run_stop) {
                result.emplace_back(before + start - run_start, before + stop - run_start);
            }
            before += run_stop - run_start;
        }
    }
    return result;
}

}  // namespace tandem
