#include "trainer/inspect/shard.h"

#include <fmt/core.h>

#include <algorithm>

#include "trainer/inspect/text.h"

namespace tandem::inspect {

ShardReport inspect_shard(const Shape& shape, const std::vector<int>& mesh, const Placements& placements) {
    ShardReport report{
        shape,
        mesh,
        checked_placements(placements, static_cast<int>(mesh.size()), static_cast<int>(shape.size())),
        {}};
    int ranks = 1;
    for (const int size : mesh) ranks *= size;
    for (int rank = 0; rank < ranks; ++rank)
        report.ranks.push_back(local_layout(shape, mesh, report.placements, coordinates_of(rank, mesh)));
    return report;
}

nlohmann::ordered_json to_json(const ShardReport& report) {
    nlohmann::ordered_json ranks = nlohmann::ordered_json::array();
    for (std::size_t rank = 0; rank < report.ranks.size(); ++rank) {
        nlohmann::ordered_json runs = nlohmann::ordered_json::array();
        for (const std::vector<Run>& dim : report.ranks[rank].runs) {
            nlohmann::ordered_json list = nlohmann::ordered_json::array();
            for (const auto& [start, stop] : dim) list.push_back(std::vector<std::int64_t>{start, stop});
            runs.push_back(std::move(list));
        }
        ranks.push_back(
            {{"rank", rank}, {"local_shape", report.ranks[rank].shape}, {"runs", std::move(runs)}});
    }
    nlohmann::ordered_json result;
    result["ranks"] = std::move(ranks);
    return result;
}

std::string to_text(const ShardReport& report) {
    constexpr std::size_t kRows = 40;
    constexpr std::size_t kShapeColumns = 22;
    constexpr std::size_t kLeastDimColumns = 16;
    constexpr std::size_t kLeftColumns = 7 + 2 + 2 * (kShapeColumns + 2);
    std::string text = fmt::format("shape {} on mesh {}\nplacements {}\n\n", list_of(report.shape, 60),
                                   list_of(report.mesh, 30), list_of(report.placements, 80));
    text += fmt::format("{:>7}  {:<22}  {:<22}  {}\n", "rank", "coordinates", "local shape",
                        "indices [start:stop] of each dim");
    const std::size_t rows = std::min(kRows, report.ranks.size());
    for (std::size_t rank = 0; rank < rows; ++rank) {
        const LocalLayout& layout = report.ranks[rank];
        std::vector<std::string> dims;
        std::size_t room = kColumns - kLeftColumns;  // shared by the dims that are still to come
        for (std::size_t dim = 0; dim < layout.runs.size(); ++dim) {
            std::vector<std::string> words;
            for (const auto& [start, stop] : layout.runs[dim])
                words.push_back(fmt::format("{}:{}", start, stop));
            const std::size_t columns = std::max(kLeastDimColumns, room / (layout.runs.size() - dim)) - 3;
            dims.push_back(fmt::format("[{}]", fit(words, " ", columns)));
            room -= std::min(room, dims.back().size() + 1);
        }
        text += fmt::format("{:>7}  {:<22}  {:<22}  {}\n", rank,
                            list_of(coordinates_of(static_cast<int>(rank), report.mesh), kShapeColumns),
                            list_of(layout.shape, kShapeColumns), fit(dims, " ", kColumns - kLeftColumns));
    }
    if (rows < report.ranks.size())
        text += fmt::format("{:>7}  {} more ranks; --json lists all\n", "...", report.ranks.size() - rows);
    return text;
}

}  // namespace tandem::inspect
