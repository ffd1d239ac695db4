// Estimators of the divergence from the reference, one token at a time (J. Schulman, "Approximating KL
// divergence", 2020), over lr = logprob - reference_logprob of a token that the policy sampled.
#pragma once

#include <string>

#include "trainer/loss/loss_options.h"

namespace tandem::trainer {

struct KlTerm {
    float value = 0;
    float dlogprob = 0;  // dvalue / dlogprob
};

//   k1 = lr                        its gradient knows nothing of the reference: of use in the reward only
//   k2 = lr^2 / 2
//   k3 = exp(-lr) - 1 + lr         never negative
//   low_var = clamp(k3, -10, 10)   no gradient where it is clamped
KlTerm kl_term(KlForm form, float log_ratio);

// "k1", "k2", "k3" or "low_var"; throws InvalidArgument for anything else.
KlForm kl_form_from_name(const std::string& name);

}  // namespace tandem::trainer
