#include "trainer/loss/batch_advantages.h"

#include "common/error.h"
#include "trainer/loss/advantages.h"
#include "trainer/loss/batch_loss.h"
#include "trainer/loss/kl.h"

namespace tandem::trainer {
namespace {

using Form = AdvantageOptions::Form;

bool by_token(Form form) {
    return form == Form::gae || form == Form::returns || form == Form::baseline;
}

// kl_coef kl_t of each target; empty without a KL in the reward.
std::vector<float> penalties(const Sample& sample, const std::vector<std::size_t>& targets,
                             const AdvantageOptions& options) {
    std::vector<float> result;
    if (options.kl_coef == 0) return result;
    require(!sample.old_logprobs.empty() && !sample.reference_logprobs.empty(),
            "a KL in the reward needs old and reference log-probs");
    for (const std::size_t at : targets) {
        const float log_ratio = sample.old_logprobs[at] - sample.reference_logprobs[at];
        result.push_back(options.kl_coef * kl_term(options.kl, log_ratio).value);
    }
    return result;
}

// Each target's reward: the penalty of each, and the score at the last.
std::vector<float> token_rewards(float score, std::size_t targets, const std::vector<float>& penalty) {
    std::vector<float> rewards(targets, 0.0f);
    for (std::size_t t = 0; t < penalty.size(); ++t) rewards[t] = -penalty[t];
    if (!rewards.empty()) rewards.back() += score;
    return rewards;
}

std::vector<float> gather(const std::vector<float>& values, const std::vector<std::size_t>& targets) {
    std::vector<float> result;
    for (const std::size_t at : targets) result.push_back(values[at]);
    return result;
}

// Per token of the sample, zero where there is no target.
std::vector<float> scatter(const std::vector<float>& values, const std::vector<std::size_t>& targets,
                           std::size_t length) {
    std::vector<float> result(length, 0.0f);
    for (std::size_t t = 0; t < targets.size(); ++t) result[targets[t]] = values[t];
    return result;
}

void set_by_token(Sample& sample, float score, const AdvantageOptions& options) {
    const std::vector<std::size_t> targets = target_positions(sample);
    const std::size_t length = sample.tokens.size();
    const std::vector<float> penalty = penalties(sample, targets, options);
    if (options.form == Form::baseline) {
        std::vector<float> advantages(targets.size(), score);
        for (std::size_t t = 0; t < penalty.size(); ++t) advantages[t] -= penalty[t];
        sample.advantages = scatter(advantages, targets, length);
        return;
    }
    const std::vector<float> rewards = token_rewards(score, targets.size(), penalty);
    if (options.form == Form::returns) {
        sample.advantages = scatter(discounted_returns(rewards, options.gamma), targets, length);
        return;
    }
    require(!sample.values.empty(), "GAE needs the values of a value head");
    const Gae gae =
        generalised_advantages(rewards, gather(sample.values, targets), options.gamma, options.lambda);
    sample.advantages = scatter(gae.advantages, targets, length);
    sample.returns = scatter(gae.returns, targets, length);
}

void set_by_sample(std::vector<Sample>& samples, std::vector<float> scores, const AdvantageOptions& options) {
    for (std::size_t i = 0; i < samples.size(); ++i) {
        for (const float penalty : penalties(samples[i], target_positions(samples[i]), options))
            scores[i] -= penalty;
    }
    const auto form = options.form == Form::group      ? group_advantages
                      : options.form == Form::centered ? centered_rewards
                                                       : leave_one_out;
    const std::vector<float> advantages = form(scores, options.group_size);
    for (std::size_t i = 0; i < samples.size(); ++i)
        samples[i].advantages.assign(samples[i].tokens.size(), advantages[i]);
}

void whiten_advantages(std::vector<Sample>& samples) {
    std::vector<float> all;
    for (const Sample& sample : samples) {
        for (const std::size_t at : target_positions(sample)) all.push_back(sample.advantages[at]);
    }
    whiten(all);
    std::size_t next = 0;
    for (Sample& sample : samples) {
        for (const std::size_t at : target_positions(sample)) sample.advantages[at] = all[next++];
    }
}

}  // namespace

void set_advantages(std::vector<Sample>& samples, std::span<const float> scores,
                    const AdvantageOptions& options) {
    require(samples.size() == scores.size(), "{} samples with {} scores", samples.size(), scores.size());
    std::vector<float> rewards(scores.begin(), scores.end());
    if (options.whiten_rewards) whiten(rewards);
    if (options.form == Form::baseline) rewards = centered_rewards(rewards, options.group_size);
    if (by_token(options.form)) {
        for (std::size_t i = 0; i < samples.size(); ++i) set_by_token(samples[i], rewards[i], options);
    } else {
        set_by_sample(samples, std::move(rewards), options);
    }
    if (options.whiten) whiten_advantages(samples);
}

}  // namespace tandem::trainer
