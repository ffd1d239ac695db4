#include "trainer/rollout/rollout.h"

#include <chrono>
#include <cmath>

#include "common/error.h"
#include "common/stopwatch.h"
#include "common/trace.h"

namespace tandem::trainer {
namespace {

using Clock = std::chrono::steady_clock;

std::vector<float> judge(const Task& task, const Rollout& rollout) {
    std::vector<Attempt> attempts;
    for (std::size_t i = 0; i < rollout.ids.size(); ++i) {
        const Completion& completion = rollout.completions[i];
        if (!completion.non_finite)
            attempts.push_back({rollout.ids[i], completion.tokens, completion.truncated});
    }
    const std::vector<double> scores = attempts.empty() ? std::vector<double>() : task.rewards(attempts);
    require(scores.size() == attempts.size(), "{} rewards for {} completions", scores.size(),
            attempts.size());
    std::vector<float> result;
    auto next = scores.begin();
    for (const Completion& completion : rollout.completions)
        result.push_back(completion.non_finite ? NAN : static_cast<float>(*next++));
    return result;
}

std::vector<std::pair<std::size_t, SampleFault>> faults_of(const Task& task, const Rollout& rollout) {
    std::vector<std::pair<std::size_t, SampleFault>> faults;
    for (std::size_t i = 0; i < rollout.ids.size(); ++i) {
        if (std::isfinite(rollout.rewards[i])) continue;
        faults.emplace_back(i, SampleFault{task.place(rollout.ids[i]),
                                           rollout.completions[i].non_finite
                                               ? "the engine's logits are not finite"
                                               : fmt::format("reward {}", std::isnan(rollout.rewards[i])
                                                                              ? std::abs(rollout.rewards[i])
                                                                              : rollout.rewards[i])});
    }
    return faults;
}

}  // namespace

std::int64_t Rollout::generated_tokens() const {
    std::int64_t result = 0;
    for (const Completion& c : completions) result += static_cast<std::int64_t>(c.tokens.size());
    return result;
}

Rollout roll_out(Rollouts& engine, const Task& task, const RolloutRequest& request) {
    Rollout result;
    result.ids = request.ids;
    for (const PromptId id : request.ids) result.prompts.push_back(task.prompt(id));
    const auto start = Clock::now();
    result.completions = engine.generate(result.prompts, request.seeds, request.sampling, request.version);
    result.generate_seconds = seconds_since(start);
    {
        const trace::Scope scope("reward", "rollout");
        result.rewards = engine.on_every_rank(result.ids.size(), [&] { return judge(task, result); });
    }
    result.faults = faults_of(task, result);
    result.reward_seconds = seconds_since(start) - result.generate_seconds;
    return result;
}

}  // namespace tandem::trainer
