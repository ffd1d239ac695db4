// The loop's view of a policy (trainer/policy/policy.h). All calls are collective.
#pragma once

#include <vector>

#include "trainer/data/sample.h"
#include "trainer/loss/loss_options.h"
#include "trainer/policy/scores.h"
#include "trainer/policy/step_stats.h"

namespace tandem::trainer {

class Learner {
  public:
    virtual ~Learner() = default;
    virtual Scores score(const std::vector<Sample>& samples, const ScoreOptions& options) = 0;
    virtual StepStats accumulate(const std::vector<Sample>& samples, const LossOptions& loss) = 0;
    virtual double apply(double lr) = 0;  // returns the gradient norm
    virtual void reset_optimizer() = 0;
    virtual void set_reference() = 0;  // the reference model is the policy as it is now
    virtual bool has_reference() const = 0;
};

}  // namespace tandem::trainer
