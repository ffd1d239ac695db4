// An optimizer step that is taken only where loss and gradients are finite, and a search for what is to blame where they
// are not. Collective; the same result on every rank.
#pragma once

#include <string>
#include <vector>

#include "trainer/policy/learner.h"
#include "trainer/rollout/sample_fault.h"

namespace tandem::trainer {

struct CheckedUpdate {
    StepStats stats;    // with grad_norm
    std::string fault;  // why nothing was applied: number, samples, tensors and rows; empty: it was applied
};

// accumulate() and apply(). names[i]: where samples[i] comes from.
CheckedUpdate checked_update(Learner& learner, const std::vector<Sample>& samples,
                             const std::vector<std::string>& names, const LossOptions& loss, double lr);

// Numbers of a sample's targets that are infinite or NaN: log-probs (own, the engine's, the reference's), values,
// advantages, returns. None: the sample is fine.
std::vector<SampleFault> faults_of(const std::vector<Sample>& samples, const std::vector<std::string>& names);

// "SAMPLES; weights: TENSORS": with the weights that are not finite, where there are any.
std::string with_weights(const std::string& samples, Learner& learner);

}  // namespace tandem::trainer
