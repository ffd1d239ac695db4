#include "trainer/data/packing.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <queue>
#include <tuple>

#include "common/error.h"

namespace tandem::trainer {
namespace {

struct Set {
    std::int64_t sum = 0;
    std::vector<int> items;
    friend bool operator<(const Set& a, const Set& b) {
        return std::make_tuple(a.sum, a.items.size(), std::cref(a.items)) <
               std::make_tuple(b.sum, b.items.size(), std::cref(b.items));
    }
};

// A partial solution: `parts` sets, largest sum first.
using Sets = std::vector<Set>;

std::int64_t spread(const Sets& sets) {
    return sets.front().sum - sets.back().sum;
}

// The widest spread is merged first; ties by content, so that the result does not depend on the heap.
struct NarrowerFirst {
    bool operator()(const Sets& a, const Sets& b) const {
        if (spread(a) != spread(b)) return spread(a) < spread(b);
        return a.front() < b.front();
    }
};

void sort_largest_first(Sets& sets) {
    std::sort(sets.begin(), sets.end(), [](const Set& a, const Set& b) { return b < a; });
}

std::vector<std::int64_t> gather(std::span<const std::int64_t> values, const std::vector<int>& indices) {
    std::vector<std::int64_t> result;
    for (const int index : indices) result.push_back(values[static_cast<std::size_t>(index)]);
    return result;
}

std::int64_t sum_of(std::span<const std::int64_t> sizes, const std::vector<int>& items) {
    std::int64_t sum = 0;
    for (const int item : items) sum += sizes[static_cast<std::size_t>(item)];
    return sum;
}

// As many bins as asked, evenly filled when every bin then still fits, else as first-fit left them.
std::vector<std::vector<int>> fill_bins(std::span<const std::int64_t> sizes, std::size_t count,
                                        std::int64_t capacity, std::vector<std::vector<int>> first_fit) {
    auto even = karmarkar_karp(sizes, static_cast<int>(count));
    const bool fits = std::all_of(even.begin(), even.end(), [&](const std::vector<int>& bin) {
        return sum_of(sizes, bin) <= capacity;
    });
    if (fits) return even;
    first_fit.resize(count);
    return first_fit;
}

}  // namespace

std::vector<std::vector<int>> karmarkar_karp(std::span<const std::int64_t> sizes, int parts) {
    enforce(parts > 0, "a partition into {} parts", parts);
    std::priority_queue<Sets, std::vector<Sets>, NarrowerFirst> queue;
    for (std::size_t i = 0; i < sizes.size(); ++i) {
        Sets sets(static_cast<std::size_t>(parts));
        sets.front() = {sizes[i], {static_cast<int>(i)}};
        queue.push(std::move(sets));
    }
    if (queue.empty()) return std::vector<std::vector<int>>(static_cast<std::size_t>(parts));
    while (queue.size() > 1) {
        Sets merged = queue.top();
        queue.pop();
        const Sets& other = queue.top();
        for (std::size_t i = 0; i < merged.size(); ++i) {  // largest with smallest
            const Set& from = other[merged.size() - 1 - i];
            merged[i].sum += from.sum;
            merged[i].items.insert(merged[i].items.end(), from.items.begin(), from.items.end());
        }
        sort_largest_first(merged);
        queue.pop();
        queue.push(std::move(merged));
    }
    std::vector<std::vector<int>> result;
    for (const Set& set : queue.top()) {
        result.push_back(set.items);
        std::sort(result.back().begin(), result.back().end());
    }
    return result;
}

std::vector<std::vector<int>> first_fit_decreasing(std::span<const std::int64_t> sizes,
                                                   std::int64_t capacity) {
    std::vector<int> order(sizes.size());
    std::iota(order.begin(), order.end(), 0);
    const auto size = [&](int i) { return sizes[static_cast<std::size_t>(i)]; };
    std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return size(a) > size(b); });
    std::vector<std::vector<int>> bins;
    std::vector<std::int64_t> space;
    for (const int item : order) {
        enforce(size(item) <= capacity, "an item of {} does not fit into {}", size(item), capacity);
        const auto found =
            std::find_if(space.begin(), space.end(), [&](std::int64_t r) { return r >= size(item); });
        const auto bin = static_cast<std::size_t>(found - space.begin());
        if (found == space.end()) {
            bins.emplace_back();
            space.push_back(capacity);
        }
        bins[bin].push_back(item);
        space[bin] -= size(item);
    }
    for (auto& bin : bins) std::sort(bin.begin(), bin.end());
    return bins;
}

void check_pack_lengths(std::span<const std::int64_t> lengths, std::int64_t capacity) {
    for (std::size_t i = 0; i < lengths.size(); ++i) {
        enforce(lengths[i] > 0, "sample {} has no tokens", i);
        enforce(lengths[i] <= capacity,
                "sample {} needs {} tokens, more than the {} of a pack (max_tokens_per_rank x cp); raise "
                "train.max_tokens_per_rank or shorten the sample",
                i, lengths[i], capacity);
    }
}

std::vector<std::vector<Pack>> plan_packs(std::span<const std::int64_t> lengths, int dp,
                                          std::int64_t capacity, const PackCount& admitted) {
    check_pack_lengths(lengths, capacity);
    const auto shares = karmarkar_karp(lengths, dp);
    std::vector<std::vector<std::int64_t>> sizes;
    std::vector<std::vector<std::vector<int>>> first_fit;
    std::size_t count = 1;
    for (const auto& share : shares) {
        sizes.push_back(gather(lengths, share));
        first_fit.push_back(first_fit_decreasing(sizes.back(), capacity));
        count = std::max(count, first_fit.back().size());
    }
    if (admitted) count = static_cast<std::size_t>(admitted(static_cast<int>(count)));
    std::vector<std::vector<Pack>> plan(shares.size());
    for (std::size_t rank = 0; rank < shares.size(); ++rank) {
        for (const auto& bin : fill_bins(sizes[rank], count, capacity, std::move(first_fit[rank]))) {
            Pack& pack = plan[rank].emplace_back();
            for (const int item : bin) pack.samples.push_back(shares[rank][static_cast<std::size_t>(item)]);
            pack.tokens = sum_of(lengths, pack.samples);
        }
    }
    return plan;
}

}  // namespace tandem::trainer
