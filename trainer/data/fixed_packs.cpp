#include <algorithm>
#include <numeric>

#include "common/error.h"
#include "trainer/data/packing.h"

namespace tandem::trainer {
namespace {

// Items, largest first, over `hands`: 0 1 2 … 2 1 0 0 1 …
std::vector<std::vector<int>> deal(const std::vector<int>& items, std::size_t hands) {
    std::vector<std::vector<int>> result(hands);
    for (std::size_t i = 0; i < items.size(); ++i) {
        const std::size_t at = i % hands;
        result[i / hands % 2 == 0 ? at : hands - 1 - at].push_back(items[i]);
    }
    return result;
}

}  // namespace

std::vector<std::vector<Pack>> plan_fixed_packs(std::span<const std::int64_t> lengths, int dp,
                                                std::int64_t samples_per_pack, std::int64_t capacity,
                                                const PackCount& admitted) {
    enforce(dp > 0 && samples_per_pack > 0, "packs of {} samples over {} ranks", samples_per_pack, dp);
    check_pack_lengths(lengths, capacity);
    const auto length = [&](int i) { return lengths[static_cast<std::size_t>(i)]; };
    std::vector<int> order(lengths.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return length(a) > length(b); });

    const auto ranks = static_cast<std::size_t>(dp);
    const auto per_pack = static_cast<std::size_t>(samples_per_pack);
    const std::size_t largest_share = (lengths.size() + ranks - 1) / ranks;
    std::size_t packs = std::max<std::size_t>(1, (largest_share + per_pack - 1) / per_pack);
    if (admitted) packs = static_cast<std::size_t>(admitted(static_cast<int>(packs)));
    std::vector<std::vector<Pack>> plan;
    for (const std::vector<int>& share : deal(order, ranks)) {
        std::vector<Pack>& mine = plan.emplace_back();
        for (std::vector<int>& samples : deal(share, packs)) {
            Pack& pack = mine.emplace_back();
            for (const int sample : samples) pack.tokens += length(sample);
            std::sort(samples.begin(), samples.end());
            pack.samples = std::move(samples);
            enforce(
                pack.tokens <= capacity,
                "{} samples of {} tokens are more than the {} of a pack (max_tokens_per_rank x cp); lower "
                "train.micro_batch or raise train.max_tokens_per_rank",
                pack.samples.size(), pack.tokens, capacity);
        }
    }
    return plan;
}

}  // namespace tandem::trainer
