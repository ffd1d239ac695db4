#include "trainer/rollout/rollout.h"

#include <chrono>
#include <cmath>

#include "common/error.h"
#include "common/stopwatch.h"
#include "common/trace.h"

namespace tandem::trainer {
namespace {

using Clock = std::chrono::steady_clock;

// The prompts of a request: samples of one that follow each other share it.
class AskedPrompts {
  public:
    explicit AskedPrompts(const std::vector<PromptId>& ids) : ids_(ids) {
        for (std::size_t i = 0; i < ids.size(); ++i) {
            if (i == 0 || ids[i] != ids[i - 1]) ++count_;
            place_.push_back(count_ - 1);
        }
    }
    std::size_t place(std::size_t sample) const { return place_[sample]; }
    // On the rank that read().
    const Prompt& of(std::size_t sample) const { return prompts_[place_[sample]]; }

    // Asks the task for each; returns their tokens.
    std::vector<Tokens> read(const Task& task) {
        std::vector<Tokens> tokens;
        for (std::size_t i = 0; i < ids_.size(); ++i) {
            if (place_[i] == prompts_.size())
                tokens.push_back(prompts_.emplace_back(task.ask(ids_[i])).tokens);
        }
        return tokens;
    }
    bool was_read() const { return !prompts_.empty(); }

  private:
    const std::vector<PromptId>& ids_;
    std::size_t count_ = 0;
    std::vector<std::size_t> place_;  // of each sample
    std::vector<Prompt> prompts_;
};

std::vector<float> judge(const Task& task, const Rollout& rollout, const AskedPrompts& asked) {
    std::vector<Attempt> attempts;
    for (std::size_t i = 0; i < rollout.ids.size(); ++i) {
        const Completion& completion = rollout.completions[i];
        if (!completion.non_finite)
            attempts.push_back({asked.of(i), completion.tokens, completion.truncated});
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
    AskedPrompts asked(request.ids);
    const auto prompts = engine.lists_on_every_rank([&] { return asked.read(task); });
    for (std::size_t i = 0; i < request.ids.size(); ++i) {
        result.prompts.push_back(prompts.at(asked.place(i)));
        if (asked.was_read()) result.expected.push_back(asked.of(i).answer);
    }
    const auto start = Clock::now();
    result.completions = engine.generate(result.prompts, request.seeds, request.sampling, request.version);
    result.generate_seconds = seconds_since(start);
    {
        const trace::Scope scope("reward", "rollout");
        result.rewards = engine.on_every_rank(result.ids.size(), [&] { return judge(task, result, asked); });
    }
    result.faults = faults_of(task, result);
    result.reward_seconds = seconds_since(start) - result.generate_seconds;
    return result;
}

}  // namespace tandem::trainer
