#include "trainer/policy/micro_batch_loss.h"

#include <algorithm>

#include "common/mesh/dist_reduce.h"

namespace tandem::trainer {

void MicroBatchLoss::look_ahead(std::span<const float> logprobs) {
    std::vector<double> sums(pack_.samples.size());  // of each sequence of the pack, in its order
    for (std::size_t i = 0; i < logprobs.size(); ++i) {
        const MicroBatch::Owner& owner = batch_.owners[i];
        const auto at = std::lower_bound(pack_.samples.begin(), pack_.samples.end(), owner.sample);
        const std::vector<float>& old = samples_[static_cast<std::size_t>(owner.sample)].old_logprobs;
        const double before =
            old.empty() ? 0 : static_cast<double>(old[static_cast<std::size_t>(owner.index)]);
        sums[static_cast<std::size_t>(at - pack_.samples.begin())] +=
            static_cast<double>(logprobs[i]) - before;
    }
    if (!sums.empty()) reduce_sums(sums, context_);
    for (std::size_t i = 0; i < sums.size(); ++i) loss_.set_sequence(pack_.samples[i], sums[i]);
}

void MicroBatchLoss::gradients(std::int64_t first, const TargetScores& scores, const TargetGradients& out) {
    const auto at_or_zero = [](std::span<const float> values, std::size_t i) {
        return values.empty() ? 0.0f : values[i];
    };
    for (std::size_t i = 0; i < scores.logprobs.size(); ++i) {
        const MicroBatch::Owner& owner = batch_.owners[static_cast<std::size_t>(first) + i];
        const BatchLoss::Gradient gradient =
            loss_.add({owner.sample, owner.index, scores.logprobs[i], at_or_zero(scores.entropies, i),
                       at_or_zero(scores.values, i)},
                      sums_);
        if (logprobs_ != nullptr) logprobs_->put(0, owner, scores.logprobs[i]);
        out.dlogprobs[i] = gradient.dlogprob;
        if (!out.dentropies.empty()) out.dentropies[i] = gradient.dentropy;
        if (!out.dvalues.empty()) out.dvalues[i] = gradient.dvalue;
    }
}

}  // namespace tandem::trainer
