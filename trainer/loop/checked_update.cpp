#include "trainer/loop/checked_update.h"

#include <fmt/core.h>

#include <array>
#include <cmath>
#include <optional>

namespace tandem::trainer {
namespace {

// A NaN's sign says nothing.
double without_sign_of_nan(double value) {
    return std::isnan(value) ? std::abs(value) : value;
}

// The first number among the targets that is infinite or NaN.
std::optional<float> odd_one(const std::vector<float>& values, const std::vector<std::uint8_t>& mask) {
    for (std::size_t at = 1; at < std::min(values.size(), mask.size()); ++at) {
        if (mask[at] != 0 && !std::isfinite(values[at])) return values[at];
    }
    return {};
}

std::vector<Sample> part_of(const std::vector<Sample>& samples, std::size_t first, std::size_t count) {
    const auto begin = samples.begin() + static_cast<std::ptrdiff_t>(first);
    return {begin, begin + static_cast<std::ptrdiff_t>(count)};
}

// By what the forward pass says of each sample.
std::vector<SampleFault> by_scores(Learner& learner, std::vector<Sample> samples,
                                   const std::vector<std::string>& names, const LossOptions& loss) {
    ScoreOptions options;
    options.temperature = loss.temperature;
    options.values = loss.value_coef != 0;
    Scores scores = learner.score(samples, options);
    for (std::size_t i = 0; i < samples.size(); ++i) {
        samples[i].old_logprobs = std::move(scores.logprobs[i]);
        if (!scores.values.empty()) samples[i].values = std::move(scores.values[i]);
    }
    return faults_of(samples, names);
}

// By the gradients of ever smaller parts: where only the backward pass overflows.
void by_gradients(Learner& learner, const std::vector<Sample>& samples, const std::vector<std::string>& names,
                  const LossOptions& loss, std::size_t first, std::size_t count,
                  std::vector<SampleFault>& found) {
    const StepStats stats = learner.accumulate(part_of(samples, first, count), loss);
    const bool bad = !std::isfinite(stats.loss) || !learner.non_finite_gradients().empty();
    learner.discard_gradients();
    if (!bad) return;
    if (count == 1) {
        found.push_back({names[first], std::isfinite(stats.loss) ? "its gradient" : "its loss"});
        return;
    }
    by_gradients(learner, samples, names, loss, first, count / 2, found);
    by_gradients(learner, samples, names, loss, first + count / 2, count - count / 2, found);
}

// Where none of them is to blame alone.
std::vector<SampleFault> whole_batch(const std::vector<std::string>& names) {
    std::vector<SampleFault> all;
    for (const std::string& name : names) all.push_back({name, "one of the batch"});
    return all;
}

std::vector<SampleFault> to_blame(Learner& learner, const std::vector<Sample>& samples,
                                  const std::vector<std::string>& names, const LossOptions& loss) {
    std::vector<SampleFault> found = by_scores(learner, samples, names, loss);
    if (found.empty()) by_gradients(learner, samples, names, loss, 0, samples.size(), found);
    return found.empty() ? whole_batch(names) : found;
}

}  // namespace

std::vector<SampleFault> faults_of(const std::vector<Sample>& samples,
                                   const std::vector<std::string>& names) {
    std::vector<SampleFault> faults;
    for (std::size_t i = 0; i < samples.size(); ++i) {
        const Sample& s = samples[i];
        const std::array<std::pair<const std::vector<float>*, const char*>, 6> all{
            {{&s.old_logprobs, "log-prob"},
             {&s.rollout_logprobs, "the engine's log-prob"},
             {&s.reference_logprobs, "the reference's log-prob"},
             {&s.values, "value"},
             {&s.advantages, "advantage"},
             {&s.returns, "return"}}};
        for (const auto& [values, what] : all) {
            const auto odd = odd_one(*values, s.target_mask);
            if (!odd) continue;
            faults.push_back({names[i], fmt::format("{} {}", what, without_sign_of_nan(*odd))});
            break;
        }
    }
    return faults;
}

std::string with_weights(const std::string& samples, Learner& learner) {
    const std::vector<NonFiniteTensor> weights = learner.non_finite_weights();
    return weights.empty() ? samples
                           : fmt::format("{}; weights that are not finite: {}", samples, text_of(weights));
}

CheckedUpdate checked_update(Learner& learner, const std::vector<Sample>& samples,
                             const std::vector<std::string>& names, const LossOptions& loss, double lr) {
    CheckedUpdate result;
    result.stats = learner.accumulate(samples, loss);
    std::string what = fmt::format("the loss is {}", without_sign_of_nan(result.stats.loss));
    result.stats.grad_norm = NAN;
    if (std::isfinite(result.stats.loss)) {
        result.stats.grad_norm = learner.apply(lr);
        if (std::isfinite(result.stats.grad_norm)) return result;
        what = fmt::format("the gradient norm is {}", without_sign_of_nan(result.stats.grad_norm));
    }
    const std::vector<NonFiniteTensor> gradients = learner.non_finite_gradients();
    learner.discard_gradients();
    const bool overflow = std::isfinite(result.stats.loss) && gradients.empty();
    if (overflow)
        what = "its gradients are finite, but their squares or the step are not in float32 (see train.clip)";
    const std::vector<SampleFault> blamed =
        overflow ? whole_batch(names) : to_blame(learner, samples, names, loss);
    result.fault = with_weights(fmt::format("{}; samples: {}", what, text_of(blamed)), learner);
    if (!gradients.empty()) result.fault += "; gradients: " + text_of(gradients);
    return result;
}

}  // namespace tandem::trainer
