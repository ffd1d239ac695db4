#include "trainer/policy/pack_plan.h"

#include <algorithm>

#include "common/align.h"
#include "trainer/context/sequence_layout.h"

namespace tandem::trainer {

using Mode = PolicyOptions::ContextMode;

std::vector<std::vector<Pack>> pack_plan(const PolicyOptions& options, int cp, int batch_ranks,
                                         const std::vector<Sample>& samples, const PackCount& admitted) {
    // Rows that each sample takes in a pack: with its own padding, where sequences are padded one by one.
    const bool zigzag = cp > 1 && options.context == Mode::zigzag;
    std::vector<std::int64_t> lengths;
    for (const Sample& sample : samples) {
        const auto length = static_cast<std::int64_t>(sample.tokens.size());
        lengths.push_back(zigzag ? round_up(length, 2 * cp) : length);
    }
    const std::int64_t capacity = options.max_tokens_per_rank * cp;
    return options.micro_batch > 0
               ? plan_fixed_packs(lengths, batch_ranks, options.micro_batch, capacity, admitted)
               : plan_packs(lengths, batch_ranks, capacity, admitted);
}

PackCount admitted_packs(const pipeline::Plan* pipeline, bool training) {
    if (pipeline == nullptr) return {};
    return [pipeline, training](int needed) {
        return training ? pipeline->microbatches(needed) : std::max(needed, pipeline->ranks());
    };
}

bool use_zigzag(const PolicyOptions& options, int cp, const Pack& pack) {
    if (cp == 1 || pack.samples.empty()) return false;
    if (options.context != Mode::automatic) return options.context == Mode::zigzag;
    return pack.samples.size() == 1 && round_up(pack.tokens, 2 * cp) <= options.max_tokens_per_rank * cp;
}

}  // namespace tandem::trainer
