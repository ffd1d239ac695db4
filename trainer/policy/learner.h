// What the loop asks of the policy under training (Policy, trainer/policy/policy.h, is one). All calls are collective.
#pragma once

#include <vector>

#include "trainer/data/sample.h"
#include "trainer/loss/loss_options.h"
#include "trainer/policy/non_finite.h"
#include "trainer/policy/scores.h"
#include "trainer/policy/step_stats.h"

namespace tandem::trainer {

class Learner {
  public:
    virtual ~Learner() = default;
    // Scores of the target tokens of every sample of the global batch, on every rank. Forward only.
    virtual Scores score(const std::vector<Sample>& samples, const ScoreOptions& options) = 0;
    // Forward and backward over the global batch (split over dp, packed, cut over cp). Adds to the gradients.
    virtual StepStats accumulate(const std::vector<Sample>& samples, const LossOptions& loss) = 0;
    // Clips, applies AdamW with this learning rate, zeroes the gradients. Returns the gradient norm before
    // clipping. One that is not finite says that nothing was applied, on any rank: weights and moments are as they
    // were, and the gradients stay until discard_gradients(). Infinity also stands for finite gradients whose step
    // would make something infinite. Throws Error where a step did make an element so all the same.
    virtual double apply(double lr) = 0;
    virtual void discard_gradients() = 0;
    // Infinite or NaN, between accumulate() and apply(); at any time.
    virtual std::vector<NonFiniteTensor> non_finite_gradients() = 0;
    virtual std::vector<NonFiniteTensor> non_finite_weights() = 0;
    virtual void reset_optimizer() = 0;
    virtual void set_reference() = 0;  // the reference model is the policy as it is now
    virtual bool has_reference() const = 0;
};

}  // namespace tandem::trainer
