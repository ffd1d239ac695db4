// Advantages (and, for a critic, returns) of the batch's target tokens from a verifier's score of each
// completion, for every algorithm.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "trainer/data/sample.h"
#include "trainer/loss/loss_options.h"

namespace tandem::trainer {

struct AdvantageOptions {
    enum class Form : std::uint8_t {
        group,
        centered,
        leave_one_out,
        gae,
        returns,
        baseline
    } form = Form::group;
    std::int64_t group_size = 1;  // consecutive samples of one prompt
    double gamma = 1;
    double lambda = 1;
    KlForm kl = KlForm::low_var;
    float kl_coef = 0;            // of the KL to the reference in the reward
    bool whiten = false;          // advantages, over all target tokens of the batch
    bool whiten_rewards = false;  // scores, over all samples of the batch, before anything else
};

// Sets `advantages` of every sample, and `returns` for gae. With R_i a sample's score, kl_t the estimate of
// its t-th target from old_logprobs and reference_logprobs, b = kl_coef:
//   group, centered, leave_one_out   advantages.h over R_i - b sum_t kl_t, the same for every token
//   gae                              over r_t = -b kl_t, and R_i more at the last target; V_t = values
//   returns (REINFORCE++)            discounted returns of the same r_t
//   baseline (REINFORCE++-baseline)  R_i - mean of its group - b kl_t
// Only target tokens count: a masked one between two targets is no step of its own. Throws InvalidArgument
// for samples that lack log-probs or values.
void set_advantages(std::vector<Sample>& samples, std::span<const float> scores,
                    const AdvantageOptions& options);

}  // namespace tandem::trainer
