// The route of an SGLang server that a rollout uses, for the stand-in: it computes with the weights that it holds and
// samples from them, and holds requests to the form that SGLang wants.
#pragma once

#include "tests/support/rollout_sampler.h"

namespace tandem::test {

class SglangStandIn;

void add_rollout_routes(SglangStandIn& server, const RolloutRoutes& options);

}  // namespace tandem::test
