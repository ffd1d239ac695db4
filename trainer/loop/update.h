// The learning part of a step: a batch of rollouts with rewards -> old and reference log-probs, values ->
// advantages -> optimizer steps. Every rank has the whole batch and comes to the same result.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <vector>

#include "trainer/config/config.h"
#include "trainer/optim/schedule.h"
#include "trainer/policy/learner.h"
#include "trainer/rollout/rollout.h"

namespace tandem::trainer {

// Prompt and answer as one sequence; the answer's tokens are the targets.
Sample sample_of(const Tokens& prompt, std::span<const std::int32_t> answer);

// The learning rate of reinforcement over its steps: the peak is train.lr.
Schedule grpo_schedule(const RunConfig& config);

struct UpdateResult {
    StepStats stats;  // of the last update: the first one's ratios are all 1
    double lr = 0;
    double logprob_max_abs_diff = 0;  // engine against trainer, over the tokens that were sampled
    double logprob_mean_abs_diff = 0;
    std::int64_t tokens = 0;  // trained on, each as often as it was
    // Updates that were left out, because of something infinite or NaN in them, and why each was; a whole step that was
    // counts as one. stats and lr are then of the last update that was taken.
    std::vector<std::string> left_out;
};

class Updater {
  public:
    // Both must outlive this.
    Updater(const RunConfig& config, Learner& learner);

    // Before the first step: the reference model, where the loss asks for one and none was loaded.
    void begin();
    // names[i]: where sample i of the rollout comes from. Takes no update after one that is left out, unless
    // train.non_finite is skip. Collective.
    UpdateResult step(std::int64_t step, const Rollout& rollout, const std::vector<std::string>& names);

  private:
    std::vector<Sample> samples_of(const Rollout& rollout) const;
    void score(std::vector<Sample>& samples);
    // The rollout as samples to learn from; or why there are none.
    std::string prepare(const Rollout& rollout, const std::vector<std::string>& names,
                        std::vector<Sample>& samples, UpdateResult& result);
    bool update(std::vector<Sample>& part, const std::vector<std::string>& names, UpdateResult& result);

    const RunConfig& config_;
    Learner& learner_;
    LossOptions loss_;
};

// Fields of metrics.jsonl for an update; a term of the loss is present when it is on.
nlohmann::ordered_json metrics_of(const UpdateResult& result, const RunConfig& config);

}  // namespace tandem::trainer
