#include "sync/plan/reshard_share.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace tandem::sync {
namespace {

// Divides `amount` over ranks that carry `loads` already, so that the fullest stays as low as
// possible: water poured over uneven ground.
std::vector<double> pour(double amount, const std::vector<double>& loads) {
    std::vector<double> sorted = loads;
    std::sort(sorted.begin(), sorted.end());
    double sum = 0;
    double level = 0;
    for (std::size_t n = 0; n < sorted.size(); ++n) {
        sum += sorted[n];
        level = (sum + amount) / static_cast<double>(n + 1);
        if (n + 1 == sorted.size() || level <= sorted[n + 1]) break;
    }
    std::vector<double> shares;
    for (const double load : loads) shares.push_back(std::max(0.0, level - load));
    return shares;
}

// Whole units in proportion to `shares`: rounded down, what is left to the largest remainders.
std::vector<std::uint64_t> apportion(std::uint64_t units, const std::vector<double>& shares) {
    const double sum = std::accumulate(shares.begin(), shares.end(), 0.0);
    std::vector<std::uint64_t> counts(shares.size(), 0);
    std::vector<double> remainders(shares.size(), 0.0);
    std::uint64_t left = units;
    for (std::size_t i = 0; i < shares.size(); ++i) {
        const double exact = static_cast<double>(units) * shares[i] / sum;
        counts[i] = std::min(left, static_cast<std::uint64_t>(exact));
        remainders[i] = exact - static_cast<double>(counts[i]);
        left -= counts[i];
    }
    std::vector<std::size_t> order(shares.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(),
                     [&](std::size_t a, std::size_t b) { return remainders[a] > remainders[b]; });
    for (std::size_t i = 0; left > 0; i = (i + 1) % order.size(), --left) ++counts[order[i]];
    return counts;
}

// Along which dim a cell is cut, and how finely.
struct Grain {
    std::size_t dim = 0;
    std::int64_t size = 1;     // of the dim
    std::int64_t quantum = 1;  // cuts are at multiples of it
    std::int64_t least = 1;    // no piece is shorter, unless it is the whole dim
    std::int64_t pieces() const { return std::max<std::int64_t>(1, size / least); }
};

std::int64_t divided_up(std::int64_t a, std::int64_t b) {
    return (a + b - 1) / b;
}

// The dim that allows the most pieces, up to one a holder; of several the one with the finest cuts. Inside a
// run cuts are at cache lines, and no run becomes smaller than min_split_bytes.
Grain best_grain(const Cell& cell, std::size_t element_bytes, std::size_t min_split_bytes) {
    const auto least_bytes = static_cast<std::int64_t>(std::max<std::size_t>(1, min_split_bytes));
    const auto element = static_cast<std::int64_t>(element_bytes);
    const auto wanted = static_cast<std::int64_t>(cell.holders.size());
    const bool run = cell.has_run();
    Grain best;
    for (std::size_t d = 0; d < cell.size.size(); ++d) {
        Grain grain{d, cell.size[d], 1, 1};
        const bool inside_run = run && d + 1 == cell.size.size();
        const std::int64_t step = inside_run ? element : cell.elements() / cell.size[d] * element;
        grain.least = divided_up(least_bytes, step);
        if (inside_run && grain.least * element >= 1024) grain.quantum = divided_up(64, element);
        grain.least = divided_up(grain.least, grain.quantum) * grain.quantum;
        const auto worth = [&](const Grain& g) {
            return std::pair(std::min(g.pieces(), wanted), g.size / g.quantum);
        };
        if (d == 0 || worth(grain) > worth(best)) best = grain;
    }
    return best;
}

// Cuts at cumulated `shares`, those that would be smaller than the grain allows left out. Empty where that
// leaves out more than a sixteenth, or where the grain is too coarse to follow the shares, which many
// occurrences in turns would.
std::vector<std::int64_t> lengths_by(const std::vector<double>& shares, const Grain& grain,
                                     std::uint64_t occurrences) {
    const double sum = std::accumulate(shares.begin(), shares.end(), 0.0);
    const double least = static_cast<double>(grain.least) / static_cast<double>(grain.size);
    double kept = 0;
    std::size_t pieces = 0;
    for (const double share : shares) {
        if (share / sum < least * (1 - 1e-9)) continue;
        kept += share;
        ++pieces;
    }
    if (kept < sum * 15 / 16) return {};
    std::vector<std::int64_t> lengths(shares.size(), 0);
    double cumulated = 0;
    double worst = 0;  // rounding, in elements of the dim
    std::int64_t at = 0;
    std::size_t left = pieces;
    for (std::size_t i = 0; i < shares.size(); ++i) {
        if (shares[i] / sum < least * (1 - 1e-9)) continue;
        cumulated += shares[i] / kept;
        const double exact = cumulated * static_cast<double>(grain.size);
        std::int64_t end = std::llround(exact / static_cast<double>(grain.quantum)) * grain.quantum;
        if (--left == 0) end = grain.size;
        worst = std::max(worst, std::abs(exact - static_cast<double>(end)));
        lengths[i] = end - at;
        if (lengths[i] < grain.least) return {};
        at = end;
    }
    const double mean = static_cast<double>(grain.size) / static_cast<double>(pieces);
    const bool repeated = occurrences > shares.size();  // only then do turns come out closer
    return repeated && worst > mean / 64 ? std::vector<std::int64_t>{} : lengths;
}

std::int64_t dim_size(const Cell& cell, std::size_t dim) {
    return cell.size.empty() ? 1 : cell.size[dim];
}

// Each holder has its own version of pieces that go in turns: together no more than this many.
constexpr std::int64_t kMostOptions = 4096;
// Turns multiplies two units.
constexpr std::uint64_t kMostUnits = std::numeric_limits<std::uint32_t>::max();

// Divides a cell among its holders, which should send in proportion to `shares`.
Division divide(const SharedCell& shared, const std::vector<double>& shares, std::size_t min_split_bytes) {
    const Cell& cell = *shared.cell;
    const Grain grain = best_grain(cell, shared.element_bytes, min_split_bytes);
    Division division;
    division.dim = grain.dim;
    division.bounds = {0};
    if (const auto lengths = lengths_by(shares, grain, shared.occurrences); !lengths.empty()) {
        for (std::size_t i = 0; i < lengths.size(); ++i) {
            if (lengths[i] == 0) continue;
            division.bounds.push_back(division.bounds.back() + lengths[i]);
            division.holders.push_back(i);
        }
        return division;
    }
    const auto holders = static_cast<std::int64_t>(cell.holders.size());
    const auto most = std::min<std::int64_t>(
        kMostOptions / holders,
        static_cast<std::int64_t>(kMostUnits / std::max<std::uint64_t>(1, shared.occurrences)));
    const std::int64_t pieces = std::min({holders, grain.pieces(), std::max<std::int64_t>(1, most)});
    for (std::int64_t j = 1; j < pieces; ++j) {
        division.bounds.push_back(grain.size * j / pieces / grain.quantum * grain.quantum);
    }
    division.bounds.push_back(grain.size);
    division.counts = apportion(shared.occurrences * division.pieces(), shares);
    return division;
}

// [holder]: bytes of all occurrences.
std::vector<std::uint64_t> sent_bytes(const SharedCell& shared, const Division& division) {
    const Cell& cell = *shared.cell;
    const auto slice = static_cast<std::uint64_t>(cell.elements() / dim_size(cell, division.dim));
    const auto bytes = [&](std::size_t piece) {
        return slice * static_cast<std::uint64_t>(division.bounds[piece + 1] - division.bounds[piece]) *
               shared.element_bytes;
    };
    std::vector<std::uint64_t> sent(cell.holders.size(), 0);
    if (division.counts.empty()) {
        for (std::size_t piece = 0; piece < division.pieces(); ++piece) {
            sent[division.holders[piece]] += shared.occurrences * bytes(piece);
        }
    } else if (division.pieces() == 1) {
        for (std::size_t i = 0; i < sent.size(); ++i) sent[i] = division.counts[i] * bytes(0);
    } else {
        const Turns turns(division.counts);
        for (std::uint64_t unit = 0; unit < turns.units(); ++unit) {
            sent[turns.holder(unit)] += bytes(static_cast<std::size_t>(unit) % division.pieces());
        }
    }
    return sent;
}

// The bytes that each holder of each cell should send. Cells are poured one after the other over what all
// others leave, again and again, which ends with the most equal loads that there are.
class Balance {
  public:
    Balance(const std::vector<SharedCell>& cells, std::span<std::uint64_t> loads)
        : cells_(cells), loads_(loads.begin(), loads.end()), amounts_(cells.size()) {}

    void settle(const std::vector<std::size_t>& order) {
        constexpr int kMostRounds = 100;
        const double bytes = std::accumulate(order.begin(), order.end(), 0.0, [&](double sum, std::size_t i) {
            return sum + total(cells_[i]);
        });
        for (int round = 0; round < kMostRounds; ++round) {
            double moved = 0;
            for (const std::size_t i : order) {
                const std::vector<double> before = amounts_[i];
                const std::vector<double> now = pour_again(i);
                for (std::size_t h = 0; h < now.size(); ++h) {
                    moved += before.empty() ? now[h] : std::abs(now[h] - before[h]);
                }
                put(i, now);
            }
            if (moved < bytes / 10000) return;
        }
    }
    // Takes a cell out and says how it would best be spread over the rest.
    std::vector<double> pour_again(std::size_t i) {
        const auto& holders = cells_[i].cell->holders;
        std::vector<double> ground;
        for (std::size_t h = 0; h < holders.size(); ++h) {
            double& load = loads_[static_cast<std::size_t>(holders[h].rank)];
            if (!amounts_[i].empty()) load -= amounts_[i][h];
            ground.push_back(load);
        }
        return pour(total(cells_[i]), ground);
    }
    void put(std::size_t i, std::vector<double> amounts) {
        amounts_[i] = std::move(amounts);
        for (std::size_t h = 0; h < amounts_[i].size(); ++h) {
            loads_[static_cast<std::size_t>(cells_[i].cell->holders[h].rank)] += amounts_[i][h];
        }
    }

  private:
    static double total(const SharedCell& shared) {
        return static_cast<double>(shared.occurrences) * static_cast<double>(shared.cell->elements()) *
               static_cast<double>(shared.element_bytes);
    }

    const std::vector<SharedCell>& cells_;
    std::vector<double> loads_;                 // [rank]
    std::vector<std::vector<double>> amounts_;  // [cell][holder]; empty: not in loads_
};

}  // namespace

Turns::Turns(const std::vector<std::uint64_t>& counts) {
    std::uint64_t sum = 0;
    for (const std::uint64_t count : counts) ends_.push_back(sum += count);
    // A step near the golden section of all units, coprime to them: units are dealt in that order.
    step_ = std::max<std::uint64_t>(1, static_cast<std::uint64_t>(static_cast<double>(sum) * 0.6180339887));
    while (std::gcd(step_, sum) != 1) ++step_;
}

std::size_t Turns::holder(std::uint64_t unit) const {
    const std::uint64_t dealt = unit * step_ % units();
    return static_cast<std::size_t>(std::upper_bound(ends_.begin(), ends_.end(), dealt) - ends_.begin());
}

std::vector<Division> divide_all(const std::vector<SharedCell>& cells, std::size_t min_split_bytes,
                                 std::span<std::uint64_t> loads) {
    std::vector<Division> divisions(cells.size());
    const auto add = [&](std::size_t i) {
        const std::vector<std::uint64_t> sent = sent_bytes(cells[i], divisions[i]);
        for (std::size_t h = 0; h < sent.size(); ++h)
            loads[static_cast<std::size_t>(cells[i].cell->holders[h].rank)] += sent[h];
        return std::vector<double>(sent.begin(), sent.end());
    };
    std::vector<std::size_t> shared;  // by several ranks; those with the least choice first, then the largest
    for (std::size_t i = 0; i < cells.size(); ++i) {
        if (cells[i].cell->holders.size() > 1) {
            shared.push_back(i);
            continue;
        }
        divisions[i] = {0, {0, dim_size(*cells[i].cell, 0)}, {0}, {}};
        add(i);
    }
    std::stable_sort(shared.begin(), shared.end(), [&](std::size_t a, std::size_t b) {
        const auto key = [&](std::size_t i) {
            return std::pair(-static_cast<std::int64_t>(cells[i].cell->holders.size()),
                             cells[i].occurrences * static_cast<std::uint64_t>(cells[i].cell->elements()) *
                                 cells[i].element_bytes);
        };
        return key(a) > key(b);
    });
    // The cells after it make up for what cannot be divided as it should be.
    Balance balance(cells, loads);
    balance.settle(shared);
    for (const std::size_t i : shared) {
        divisions[i] = divide(cells[i], balance.pour_again(i), min_split_bytes);
        balance.put(i, add(i));
    }
    return divisions;
}

}  // namespace tandem::sync
