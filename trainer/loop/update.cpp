#include "trainer/loop/update.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "common/trace.h"
#include "trainer/data/random.h"
#include "trainer/loop/checked_update.h"
#include "trainer/loss/batch_advantages.h"
#include "trainer/loss/config.h"
#include "trainer/optim/schedule.h"

namespace tandem::trainer {
namespace {

// The engine's log-probs with the trainer's own: shows whether the engine samples from this policy.
void compare(const std::vector<Sample>& samples, UpdateResult& result) {
    double sum = 0;
    double largest = 0;
    std::int64_t tokens = 0;
    for (std::size_t i = 0; i < samples.size(); ++i) {
        for (std::size_t at = 0; at < samples[i].tokens.size(); ++at) {
            if (samples[i].target_mask[at] == 0) continue;
            const float own = samples[i].old_logprobs[at];
            const float theirs = samples[i].rollout_logprobs[at];
            const double d = std::abs(static_cast<double>(own) - static_cast<double>(theirs));
            largest = std::max(largest, d);
            sum += d;
            ++tokens;
        }
    }
    result.logprob_max_abs_diff = largest;
    result.logprob_mean_abs_diff = sum / static_cast<double>(std::max<std::int64_t>(tokens, 1));
}

}  // namespace

Sample sample_of(const Tokens& prompt, std::span<const std::int32_t> answer) {
    Sample sample;
    sample.tokens = prompt;
    sample.tokens.insert(sample.tokens.end(), answer.begin(), answer.end());
    sample.target_mask.assign(prompt.size(), 0);
    sample.target_mask.resize(sample.tokens.size(), 1);
    return sample;
}

Schedule grpo_schedule(const RunConfig& c) {
    const std::int64_t steps = c.grpo.schedule_steps > 0 ? c.grpo.schedule_steps : c.grpo.steps;
    return {Schedule::Decay::linear, c.grpo.warmup, steps, c.grpo.floor};
}

Updater::Updater(const RunConfig& config, Learner& learner)
    : config_(config), learner_(learner), loss_(loss_options(config)) {
    loss_.on_policy = !scores_before_update(config);
}

void Updater::begin() {
    if (needs_reference(config_) && !learner_.has_reference()) learner_.set_reference();
}

std::vector<Sample> Updater::samples_of(const Rollout& rollout) const {
    std::vector<Sample> samples;
    for (std::size_t i = 0; i < rollout.prompts.size(); ++i) {
        const Completion& completion = rollout.completions[i];
        Sample sample = sample_of(rollout.prompts[i], completion.tokens);
        sample.rollout_logprobs.assign(rollout.prompts[i].size(), 0.0f);
        sample.rollout_logprobs.insert(sample.rollout_logprobs.end(), completion.logprobs.begin(),
                                       completion.logprobs.end());
        samples.push_back(std::move(sample));
    }
    return samples;
}

// The trainer's own log-probs of the rollouts become the old ones of the ratio, where the update does not find them.
void Updater::score(std::vector<Sample>& samples) {
    ScoreOptions options;
    options.temperature = loss_.temperature;
    options.values = loss_.value_coef != 0;
    Scores own;
    if (!loss_.on_policy) own = learner_.score(samples, options);
    Scores reference;
    if (needs_reference(config_)) {
        options.values = false;
        options.reference = true;
        reference = learner_.score(samples, options);
    }
    for (std::size_t i = 0; i < samples.size(); ++i) {
        if (!own.logprobs.empty()) samples[i].old_logprobs = std::move(own.logprobs[i]);
        if (!own.values.empty()) samples[i].values = std::move(own.values[i]);
        if (!reference.logprobs.empty()) samples[i].reference_logprobs = std::move(reference.logprobs[i]);
    }
}

std::string Updater::prepare(const Rollout& rollout, const std::vector<std::string>& names,
                             std::vector<Sample>& samples, UpdateResult& result) {
    std::vector<SampleFault> faults;
    for (const auto& [i, fault] : rollout.faults) faults.push_back(fault);
    if (!faults.empty()) return with_weights("samples: " + text_of(faults), learner_);
    samples = samples_of(rollout);
    score(samples);
    if (faults = faults_of(samples, names); !faults.empty())
        return with_weights("samples: " + text_of(faults), learner_);
    if (!loss_.on_policy) compare(samples, result);
    set_advantages(samples, rollout.rewards, advantage_options(config_));
    faults = faults_of(samples, names);
    return faults.empty() ? "" : "samples: " + text_of(faults);
}

bool Updater::update(std::vector<Sample>& part, const std::vector<std::string>& names, UpdateResult& result) {
    const CheckedUpdate taken = checked_update(learner_, part, names, loss_, result.lr);
    if (!taken.fault.empty()) {
        result.left_out.push_back(taken.fault);
        return config_.train.non_finite == "skip";
    }
    result.stats = taken.stats;
    if (!taken.stats.logprobs.empty()) {
        for (std::size_t i = 0; i < part.size(); ++i) part[i].old_logprobs = taken.stats.logprobs[i];
        compare(part, result);
    }
    result.tokens += taken.stats.tokens;
    return true;
}

UpdateResult Updater::step(std::int64_t step, const Rollout& rollout, const std::vector<std::string>& names) {
    const std::int64_t every = config_.loss.reference_every;
    if (every > 0 && step > 0 && step % every == 0) learner_.set_reference();
    UpdateResult result;
    result.lr = learning_rate(grpo_schedule(config_), config_.train.lr, step);
    result.stats.loss = result.stats.grad_norm =
        std::numeric_limits<double>::quiet_NaN();  // until one is taken
    std::vector<Sample> samples;
    if (std::string fault = prepare(rollout, names, samples, result); !fault.empty()) {
        result.left_out.push_back(std::move(fault));
        return result;
    }
    Random random(static_cast<std::uint64_t>(config_.run.seed), Purpose::halves,
                  static_cast<std::uint64_t>(step));
    const std::size_t part_size = samples.size() / static_cast<std::size_t>(config_.grpo.updates);
    for (std::int64_t epoch = 0; epoch < config_.grpo.epochs; ++epoch) {
        const auto order = random.permutation(static_cast<std::int64_t>(samples.size()));
        for (std::size_t start = 0; start < samples.size(); start += part_size) {
            std::vector<Sample> part;
            std::vector<std::string> part_names;
            for (std::size_t i = start; i < start + part_size; ++i) {
                part.push_back(samples[static_cast<std::size_t>(order[i])]);
                part_names.push_back(names[static_cast<std::size_t>(order[i])]);
            }
            if (!update(part, part_names, result)) return result;
        }
    }
    return result;
}

nlohmann::ordered_json metrics_of(const UpdateResult& result, const RunConfig& config) {
    const StepStats& stats = result.stats;
    nlohmann::ordered_json json{{"loss", stats.loss},
                                {"grad_norm", stats.grad_norm},
                                {"lr", result.lr},
                                {"clip_fraction", stats.clip_fraction},
                                {"clip_fraction_low", stats.clip_fraction_low},
                                {"clip_fraction_high", stats.clip_fraction_high},
                                {"ratio_max", stats.ratio_max},
                                {"kl", stats.kl},
                                {"entropy", stats.entropy}};
    const LossOptions loss = loss_options(config);
    if (loss.dual_clip > 0) json["dual_clip_fraction"] = stats.dual_clip_fraction;
    if (needs_reference(config)) json["reference_kl"] = stats.reference_kl;
    if (loss.value_coef != 0) {
        json["value_loss"] = stats.value_loss;
        json["value_clip_fraction"] = stats.value_clip_fraction;
    }
    if (loss.truncation != LossOptions::Truncation::off) {
        json["importance_mean"] = stats.importance_mean;
        json["importance_fraction"] = stats.importance_fraction;
    }
    if (loss.opsm_delta > 0) json["dropped_fraction"] = stats.dropped_fraction;
    if (!result.left_out.empty()) {
        json["skipped"] = result.left_out.size();
        json["non_finite"] = result.left_out.back();
    }
    json["logprob_max_abs_diff"] = result.logprob_max_abs_diff;
    json["logprob_mean_abs_diff"] = result.logprob_mean_abs_diff;
    return json;
}

}  // namespace tandem::trainer
