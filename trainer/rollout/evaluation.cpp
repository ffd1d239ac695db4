#include "trainer/rollout/evaluation.h"

namespace tandem::trainer {
namespace {

// All held-out prompts, with the same seeds at every evaluation.
Rollout held_out(Rollouts& engine, const Task& task, const EvaluationOptions& options, double temperature) {
    Random random(options.seed, Purpose::evaluation);
    RolloutRequest request;
    for (std::int64_t i = 0; i < task.held_out_size(); ++i) {
        request.ids.push_back({PromptId::Split::held_out, i});
        request.seeds.push_back(random.bits());
    }
    request.sampling = {temperature, options.max_new_tokens, task.stop_tokens()};
    request.version = options.version;
    return roll_out(engine, task, request);
}

double mean_reward(const Rollout& rollout) {
    double sum = 0;
    for (const float reward : rollout.rewards) sum += static_cast<double>(reward);
    return sum / static_cast<double>(rollout.rewards.size());
}

}  // namespace

Evaluation evaluate(Rollouts& engine, const Task& task, const EvaluationOptions& options) {
    return {mean_reward(held_out(engine, task, options, options.temperature)),
            mean_reward(held_out(engine, task, options, 0))};
}

}  // namespace tandem::trainer
