// Result of one accumulate() over the global batch: the same on every rank.
#pragma once

#include <cstdint>
#include <vector>

#include "trainer/loss/loss_sums.h"

namespace tandem::trainer {

struct StepStats {
    double loss = 0;       // by the aggregation of the options
    double grad_norm = 0;  // what apply() returned; accumulate leaves it 0
    std::int64_t target_tokens = 0;
    std::int64_t tokens = 0;  // without padding
    int micro_batches = 0;
    std::vector<std::vector<float>> logprobs;  // of every sample's targets, where the loss is on_policy
    // Means over target tokens.
    double policy_loss = 0;
    double entropy = 0;
    double kl = 0;             // k3 estimate of KL(old || policy)
    double clip_fraction = 0;  // of ratios; its two sides
    double clip_fraction_low = 0;
    double clip_fraction_high = 0;
    double dual_clip_fraction = 0;
    double ratio_max = 0;     // of policy / old, over all tokens
    double reference_kl = 0;  // by loss.kl
    double value_loss = 0;
    double value_clip_fraction = 0;
    double importance_mean = 1;      // weights between engine and trainer, as used
    double importance_fraction = 0;  // of weights that were truncated
    double dropped_fraction = 0;     // of tokens, by OPSM

    void set_means(const LossSums& sums);
};

inline void StepStats::set_means(const LossSums& sums) {
    const auto mean = [&](LossSums::Sum sum) { return sums[sum] / static_cast<double>(target_tokens); };
    policy_loss = mean(LossSums::policy_loss);
    entropy = mean(LossSums::entropy);
    kl = mean(LossSums::kl);
    clip_fraction = mean(LossSums::clipped);
    clip_fraction_low = mean(LossSums::clipped_low);
    clip_fraction_high = mean(LossSums::clipped_high);
    dual_clip_fraction = mean(LossSums::dual_clipped);
    ratio_max = sums.ratio_max;
    reference_kl = mean(LossSums::reference_kl);
    value_loss = mean(LossSums::value_loss);
    value_clip_fraction = mean(LossSums::value_clipped);
    importance_mean = mean(LossSums::importance);
    importance_fraction = mean(LossSums::truncated);
    dropped_fraction = mean(LossSums::dropped);
}

}  // namespace tandem::trainer
