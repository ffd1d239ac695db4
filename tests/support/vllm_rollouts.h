// The routes of a vLLM server that a rollout uses, for the stand-in: it computes with the weights that it holds and
// samples from them, and holds requests to the form that vLLM wants.
#pragma once

#include <string>

namespace tandem::test {

class VllmStandIn;

struct RolloutRoutes {
    std::string model;      // the directory that the stand-in was started with, float32
    std::string scratch;    // folder for directories of its own
    bool scale_out = true;  // /inference/v1/generate is there
    int eos = -1;           // would end an answer unless ignore_eos
};
void add_rollout_routes(VllmStandIn& server, const RolloutRoutes& options);

}  // namespace tandem::test
