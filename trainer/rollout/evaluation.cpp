#include "trainer/rollout/evaluation.h"

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

HeldOutScores scores_of(const Rollout& rollout, const EvaluationOptions& options, std::int64_t samples) {
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
    }
    evaluation.greedy = held_out(engine, task, options, 0, 1);
    evaluation.result.greedy = scores_of(evaluation.greedy, options, 1);
    return evaluation;
}

}  // namespace tandem::trainer
