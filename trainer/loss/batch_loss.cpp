#include "trainer/loss/batch_loss.h"

#include <algorithm>
#include <cmath>

#include "common/error.h"
#include "trainer/loss/importance.h"
#include "trainer/loss/kl.h"
#include "trainer/loss/policy_loss.h"
#include "trainer/loss/value_loss.h"

namespace tandem::trainer {
namespace {

using Ratio = LossOptions::Ratio;
using Aggregation = LossOptions::Aggregation;

float at_or_zero(const std::vector<float>& values, std::size_t index) {
    return values.empty() ? 0.0f : values[index];
}

void check_options(const LossOptions& o) {
    require(o.clip_low >= 0 && o.clip_low < 1 && o.clip_high >= 0,
            "clip range [1 - {}, 1 + {}] is not around 1", o.clip_low, o.clip_high);
    require(o.dual_clip == 0 || o.dual_clip > 1, "dual clip {} must be 0 or above 1", o.dual_clip);
    require(o.tis_low >= 0 && o.tis_low <= o.tis_high, "importance weights in [{}, {}]", o.tis_low,
            o.tis_high);
    require(o.temperature > 0, "temperature {} must be positive", o.temperature);
    require(!o.on_policy || (o.ratio != Ratio::sequence && o.opsm_delta == 0),
            "ratios of whole sequences need old log-probs");
    require(o.constant_length > 0, "a sum of losses divided by a length of {}", o.constant_length);
}

}  // namespace

std::vector<std::size_t> target_positions(const Sample& sample) {
    std::vector<std::size_t> positions;
    for (std::size_t i = 1; i < sample.target_mask.size(); ++i) {
        if (sample.target_mask[i] != 0) positions.push_back(i);
    }
    return positions;
}

BatchLoss::BatchLoss(std::span<const Sample> samples, const LossOptions& options)
    : samples_(samples), options_(options), sequences_(samples.size()) {
    check_options(options);
    for (std::size_t i = 0; i < samples.size(); ++i) {
        const auto targets = static_cast<std::int64_t>(target_positions(samples[i]).size());
        sequences_[i].targets = static_cast<double>(targets);
        target_tokens_ += targets;
        if (targets > 0) check(static_cast<int>(i));
    }
    divisor_ = options.aggregation == Aggregation::token_mean ? static_cast<double>(target_tokens_)
                                                              : static_cast<double>(samples.size());
    if (options.aggregation == Aggregation::constant) divisor_ *= options.constant_length;
    for (Sequence& sequence : sequences_) {
        if (options.aggregation == Aggregation::sequence_mean && sequence.targets > 0)
            sequence.share = 1 / sequence.targets;
        sequence.gradient = static_cast<float>(1 / divisor_ * sequence.share);
    }
}

void BatchLoss::check(int index) const {
    const Sample& sample = samples_[static_cast<std::size_t>(index)];
    const auto needs = [&](bool needed, const std::vector<float>& values, const char* what) {
        require(!needed || !values.empty(), "sample {} has no {}, which the loss needs", index, what);
    };
    if (options_.ratio == Ratio::supervised) return;
    const bool truncates = options_.truncation != LossOptions::Truncation::off;
    needs(truncates, sample.rollout_logprobs, "rollout_logprobs");
    needs(truncates && !options_.on_policy, sample.old_logprobs, "old_logprobs");
    needs(options_.kl_coef != 0, sample.reference_logprobs, "reference_logprobs");
    needs(options_.value_coef != 0, sample.returns, "returns");
    needs(options_.value_coef != 0, sample.values, "values");
}

bool BatchLoss::needs_sequences() const {
    return options_.ratio == Ratio::sequence || (options_.ratio == Ratio::token && options_.opsm_delta > 0);
}

void BatchLoss::set_sequence(int index, double log_ratio_sum) {
    const Sample& sample = samples_[static_cast<std::size_t>(index)];
    Sequence& sequence = sequences_[static_cast<std::size_t>(index)];
    if (sequence.targets == 0) return;
    sequence.log_ratio = static_cast<float>(log_ratio_sum / sequence.targets);
    sequence.drifted = options_.opsm_delta > 0 && -sequence.log_ratio > options_.opsm_delta;
    if (options_.ratio != Ratio::sequence) return;
    // Each token's loss depends on the log-prob of every token of the sequence, by 1 / targets.
    double sum = 0;
    for (const std::size_t at : target_positions(sample)) {
        const float advantage = at_or_zero(sample.advantages, at);
        const PolicyTerm term = clipped_policy_loss(sequence.log_ratio, advantage, options_);
        const float old = at_or_zero(sample.old_logprobs, at);
        sum += static_cast<double>(importance(sample, sequence, at, old, nullptr)) *
               static_cast<double>(term.dlog_ratio);
    }
    sequence.dlogprob = static_cast<float>(sum / sequence.targets);
}

float BatchLoss::importance(const Sample& sample, const Sequence& sequence, std::size_t at, float old_logprob,
                            LossSums* sums) const {
    ImportanceWeight found;
    if (options_.truncation != LossOptions::Truncation::off)
        found = importance_weight(old_logprob, sample.rollout_logprobs[at], options_);
    const bool dropped = sequence.drifted && at_or_zero(sample.advantages, at) < 0;
    if (sums != nullptr) {
        (*sums)[LossSums::importance] += static_cast<double>(found.weight);
        (*sums)[LossSums::truncated] += found.truncated ? 1 : 0;
        (*sums)[LossSums::dropped] += dropped ? 1 : 0;
    }
    return dropped ? 0.0f : found.weight;
}

void BatchLoss::add_policy(const Token& token, const Sample& sample, const Sequence& sequence, LossSums& sums,
                           double& loss, float& dlogprob) const {
    const auto at = static_cast<std::size_t>(token.index);
    const float advantage = at_or_zero(sample.advantages, at);
    const float old = options_.on_policy ? token.logprob : at_or_zero(sample.old_logprobs, at);
    const float log_ratio = token.logprob - old;
    PolicyTerm term{-advantage * token.logprob, -advantage};
    if (options_.ratio == Ratio::token) term = clipped_policy_loss(log_ratio, advantage, options_);
    if (options_.ratio == Ratio::sequence)
        term = clipped_policy_loss(sequence.log_ratio, advantage, options_);
    const float weight = importance(sample, sequence, at, old, &sums);
    const float weighted = weight * term.loss;
    loss = static_cast<double>(weighted);
    dlogprob = options_.ratio == Ratio::sequence ? sequence.dlogprob : weight * term.dlog_ratio;

    sums[LossSums::policy_loss] += static_cast<double>(weighted);
    const float bounded = std::clamp(log_ratio, -kLogRatioBound, kLogRatioBound);
    sums[LossSums::kl] += static_cast<double>(std::expm1(bounded) - bounded);
    sums[LossSums::clipped] += term.clipped_low || term.clipped_high ? 1 : 0;
    sums[LossSums::clipped_low] += term.clipped_low ? 1 : 0;
    sums[LossSums::clipped_high] += term.clipped_high ? 1 : 0;
    sums[LossSums::dual_clipped] += term.dual_clipped ? 1 : 0;
    sums.ratio_max = std::max(sums.ratio_max, static_cast<double>(std::exp(bounded)));
}

BatchLoss::Gradient BatchLoss::add(const Token& token, LossSums& sums) const {
    const Sample& sample = samples_[static_cast<std::size_t>(token.sample)];
    const Sequence& sequence = sequences_[static_cast<std::size_t>(token.sample)];
    const auto at = static_cast<std::size_t>(token.index);
    sums[LossSums::entropy] += static_cast<double>(token.entropy);
    double loss = static_cast<double>(-token.logprob);
    if (options_.ratio == Ratio::supervised) {
        sums[LossSums::loss] += loss * sequence.share;
        return {sequence.gradient * -1.0f, 0, 0};
    }
    Gradient gradient;
    add_policy(token, sample, sequence, sums, loss, gradient.dlogprob);
    if (!sample.reference_logprobs.empty()) {
        const KlTerm kl = kl_term(options_.kl, token.logprob - sample.reference_logprobs[at]);
        sums[LossSums::reference_kl] += static_cast<double>(kl.value);
        loss += static_cast<double>(options_.kl_coef) * static_cast<double>(kl.value);
        if (options_.kl_coef != 0) gradient.dlogprob += options_.kl_coef * kl.dlogprob;
    }
    if (options_.entropy_coef != 0) {
        loss -= static_cast<double>(options_.entropy_coef) * static_cast<double>(token.entropy);
        gradient.dentropy = sequence.gradient * -options_.entropy_coef;
    }
    if (options_.value_coef != 0) {
        const ValueTerm value =
            value_loss(token.value, sample.values[at], sample.returns[at], options_.value_clip);
        sums[LossSums::value_loss] += static_cast<double>(value.loss);
        sums[LossSums::value_clipped] += value.clipped ? 1 : 0;
        loss += static_cast<double>(options_.value_coef) * static_cast<double>(value.loss);
        gradient.dvalue = sequence.gradient * (options_.value_coef * value.dvalue);
    }
    gradient.dlogprob = sequence.gradient * gradient.dlogprob;
    sums[LossSums::loss] += loss * sequence.share;
    return gradient;
}

}  // namespace tandem::trainer
