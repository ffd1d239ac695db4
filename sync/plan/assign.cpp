#include "sync/plan/assign.h"

#include <algorithm>
#include <set>

#include "common/error.h"

namespace tandem::sync {
namespace {

// How `rows` are divided over ranks that carry `loads` rows' worth of bytes already, so that the fullest
// stays as low as possible: water poured over uneven ground.
std::vector<std::int64_t> pour(std::int64_t rows, const std::vector<double>& loads) {
    std::vector<std::size_t> order(loads.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::stable_sort(order.begin(), order.end(),
                     [&](std::size_t a, std::size_t b) { return loads[a] < loads[b]; });
    double sum = 0;
    double level = 0;
    for (std::size_t n = 0; n < order.size(); ++n) {
        sum += loads[order[n]];
        level = (sum + static_cast<double>(rows)) / static_cast<double>(n + 1);
        if (n + 1 == order.size() || level <= loads[order[n + 1]]) break;
    }
    std::vector<std::int64_t> shares(loads.size(), 0);
    std::int64_t left = rows;
    for (const std::size_t i : order) {
        shares[i] = std::clamp(static_cast<std::int64_t>(level - loads[i]), std::int64_t{0}, left);
        left -= shares[i];
    }
    for (std::size_t n = 0; left > 0; n = (n + 1) % order.size(), --left) ++shares[order[n]];
    return shares;
}

}  // namespace

std::int64_t row_count(const Shape& shape) {
    return shape.empty() ? 1 : shape[0];
}

std::int64_t row_elements(const Shape& shape) {
    return shape.empty() ? 1 : numel(Shape(shape.begin() + 1, shape.end()));
}

std::vector<std::vector<Assignment>> assign_rows(const std::vector<PlanTensor>& tensors, int world_size) {
    const auto world = static_cast<std::size_t>(world_size);
    std::vector<std::vector<Assignment>> result(world);
    std::vector<double> bytes(world, 0.0);
    for (std::size_t t = 0; t < tensors.size(); ++t) {
        const PlanTensor& tensor = tensors[t];
        const std::int64_t rows = row_count(tensor.info.shape);
        const double row_bytes = std::max(1.0, static_cast<double>(row_elements(tensor.info.shape)) *
                                                   static_cast<double>(dtype_size(tensor.info.dtype)));
        std::set<std::int64_t> cuts{0, rows};
        for (const Holding& holding : tensor.holdings) {
            require(holding.rank >= 0 && holding.rank < world_size && holding.start >= 0 &&
                        holding.start <= holding.stop && holding.stop <= rows && holding.local >= 0,
                    "tensor '{}': rank {} claims rows [{}, {}) of {}", tensor.info.name, holding.rank,
                    holding.start, holding.stop, rows);
            cuts.insert(holding.start);
            cuts.insert(holding.stop);
        }
        // Between two cuts the same ranks hold every row.
        for (auto at = cuts.begin(); std::next(at) != cuts.end(); ++at) {
            const std::int64_t start = *at;
            const std::int64_t stop = *std::next(at);
            std::vector<const Holding*> holders;
            std::vector<double> loads;
            for (const Holding& holding : tensor.holdings) {
                if (holding.start > start || holding.stop < stop) continue;
                holders.push_back(&holding);
                loads.push_back(bytes[static_cast<std::size_t>(holding.rank)] / row_bytes);
            }
            require(!holders.empty(), "tensor '{}': no rank holds rows [{}, {})", tensor.info.name, start,
                    stop);
            const std::vector<std::int64_t> shares = pour(stop - start, loads);
            std::int64_t row = start;
            for (std::size_t i = 0; i < holders.size(); ++i) {
                if (shares[i] == 0) continue;
                const auto rank = static_cast<std::size_t>(holders[i]->rank);
                result[rank].push_back({static_cast<int>(t), row, row + shares[i],
                                        holders[i]->local + (row - holders[i]->start)});
                bytes[rank] += static_cast<double>(shares[i]) * row_bytes;
                row += shares[i];
            }
        }
    }
    return result;
}

}  // namespace tandem::sync
