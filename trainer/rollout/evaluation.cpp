#include "trainer/rollout/evaluation.h"

#include <set>

#include "trainer/rollout/statistics.h"

namespace tandem::trainer {
namespace {

// All held-out prompts, `samples` times each, with the same seeds at every evaluation.
Rollout held_out(Rollouts& engine, const Task& task, const EvaluationOptions& options, double temperature,
                 std::int64_t samples) {
    Random random(options.seed, Purpose::evaluation);
    RolloutRequest request;
    for (std::int64_t i = 0; i < task.held_out_size(); ++i) {
        for (std::int64_t k = 0; k < samples; ++k) {
            request.ids.push_back({PromptId::Split::held_out, i});
            request.seeds.push_back(random.bits());
        }
    }
    request.sampling = {temperature, options.max_new_tokens, task.stop_tokens()};
    request.version = options.version;
    return roll_out(engine, task, request);
}

// Without the prompts one of whose samples has a fault.
Rollout without_faults(const Rollout& rollout, std::int64_t samples) {
    if (rollout.faults.empty()) return rollout;
    const auto group = [&](std::size_t i) { return i / static_cast<std::size_t>(samples); };
    std::set<std::size_t> faulty;
    for (const auto& [i, fault] : rollout.faults) faulty.insert(group(i));
    Rollout rest;
    for (std::size_t i = 0; i < rollout.rewards.size(); ++i) {
        if (faulty.contains(group(i))) continue;
        rest.completions.push_back(rollout.completions[i]);
        rest.rewards.push_back(rollout.rewards[i]);
    }
    return rest;
}

HeldOutScores scores_of(const Rollout& all_of_them, const EvaluationOptions& options, std::int64_t samples) {
    const Rollout rollout = without_faults(all_of_them, samples);
    if (rollout.rewards.empty()) return {};
    const RolloutStatistics all = statistics_of(rollout, samples, options.version);
    HeldOutScores scores{all.reward_mean, 0, 0, all.length_mean, all.truncated};
    const auto prompts = static_cast<double>(rollout.rewards.size()) / static_cast<double>(samples);
    for (auto first = rollout.rewards.begin(); first != rollout.rewards.end(); first += samples) {
        std::int64_t passed = 0;
        for (auto reward = first; reward != first + samples; ++reward)
            passed += static_cast<double>(*reward) >= options.pass_score ? 1 : 0;
        scores.pass_at_1 += pass_at_k(samples, passed, 1);
        scores.pass_at_k += pass_at_k(samples, passed, samples);
    }
    scores.pass_at_1 /= prompts;
    scores.pass_at_k /= prompts;
    return scores;
}

}  // namespace

Evaluation evaluate(Rollouts& engine, const Task& task, const EvaluationOptions& options) {
    Evaluation evaluation;
    if (options.samples > 0) {
        const Rollout rollout = held_out(engine, task, options, options.temperature, options.samples);
        evaluation.result.sampled = scores_of(rollout, options, options.samples);
        for (const auto& [i, fault] : rollout.faults) evaluation.faults.push_back(fault);
    }
    evaluation.greedy = held_out(engine, task, options, 0, 1);
    evaluation.result.greedy = scores_of(evaluation.greedy, options, 1);
    for (const auto& [i, fault] : evaluation.greedy.faults) evaluation.faults.push_back(fault);
    return evaluation;
}

}  // namespace tandem::trainer
