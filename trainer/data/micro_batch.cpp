#include "trainer/data/micro_batch.h"

#include <algorithm>
#include <utility>

#include "common/error.h"

namespace tandem::trainer {

void check_samples(std::span<const Sample> samples, std::int64_t vocab) {
    for (std::size_t i = 0; i < samples.size(); ++i) {
        const Sample& sample = samples[i];
        const std::size_t length = sample.tokens.size();
        const auto fits = [&](std::size_t size) { return size == length || size == 0; };
        enforce(sample.target_mask.size() == length, "sample {}: a target mask of {} for {} tokens", i,
                sample.target_mask.size(), length);
        for (const auto& [values, what] :
             {std::pair(&sample.advantages, "advantages"), std::pair(&sample.old_logprobs, "old log-probs"),
              std::pair(&sample.rollout_logprobs, "rollout log-probs"),
              std::pair(&sample.reference_logprobs, "reference log-probs"),
              std::pair(&sample.values, "values"), std::pair(&sample.returns, "returns")}) {
            enforce(fits(values->size()), "sample {}: {} {} for {} tokens", i, values->size(), what, length);
        }
        const auto outside = std::find_if(sample.tokens.begin(), sample.tokens.end(),
                                          [&](std::int32_t token) { return token < 0 || token >= vocab; });
        enforce(outside == sample.tokens.end(), "sample {}: token {} is not in the vocabulary of {}", i,
                outside == sample.tokens.end() ? 0 : *outside, vocab);
    }
}

MicroBatch make_micro_batch(std::span<const Sample> samples, const Pack& pack, bool zigzag, int cp,
                            int rank) {
    std::vector<std::int64_t> lengths;
    for (const int index : pack.samples) {
        lengths.push_back(static_cast<std::int64_t>(samples[static_cast<std::size_t>(index)].tokens.size()));
    }
    MicroBatch batch;
    batch.layout = zigzag ? zigzag_layout(lengths, cp, rank) : packed_layout(lengths, cp, rank);
    for (const SequenceLayout::Row& row : batch.layout.rows) {
        batch.positions.push_back(row.position);
        if (batch.layout.is_padding(row)) {
            batch.tokens.push_back(0);
            continue;
        }
        const int index = pack.samples[static_cast<std::size_t>(row.sequence)];
        const Sample& sample = samples[static_cast<std::size_t>(index)];
        const auto next = static_cast<std::size_t>(row.position) + 1;
        batch.tokens.push_back(sample.tokens[next - 1]);
        if (next >= sample.tokens.size() || sample.target_mask[next] == 0) continue;
        batch.target_rows.push_back(static_cast<std::int32_t>(batch.tokens.size()) - 1);
        batch.target_tokens.push_back(sample.tokens[next]);
        batch.owners.push_back({index, static_cast<std::int64_t>(next)});
    }
    return batch;
}

}  // namespace tandem::trainer
