// The routes of a vLLM server that a rollout uses, for the stand-in: it computes with the weights that it holds and
// samples from them, and holds requests to the form that vLLM wants.
#pragma once

#include "tests/support/rollout_sampler.h"

namespace tandem::test {

class VllmStandIn;

void add_rollout_routes(VllmStandIn& server, const RolloutRoutes& options);

}  // namespace tandem::test
