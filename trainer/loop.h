// The training loop: a supervised warm start, then generate -> reward -> advantages -> pack ->
// forward/backward -> optimizer -> sync. It knows a learner, an engine behind HTTP and a function that
// publishes weights; what a mesh, a bucket or an engine process is, it does not know. Every rank runs it with
// the same inputs and comes to the same result.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "common/comm/communicator.h"
#include "trainer/config.h"
#include "trainer/data/task.h"
#include "trainer/learner.h"
#include "trainer/report/recorder.h"
#include "trainer/rollout/evaluation.h"
#include "trainer/rollout/rollouts.h"

namespace tandem::trainer {

// Where the time of one sync went, in milliseconds as rank 0 sees them.
struct SyncTimes {
    double total = 0;  // pause to resume
    double prepare = 0, pause = 0, gather = 0, copy = 0, load = 0, resume = 0;
    double speed_of_light = 0;
};

struct LoopParts {
    comm::Communicator& world;
    const Task& task;
    Learner& learner;
    Rollouts& rollouts;
    std::function<SyncTimes(std::int64_t version)>
        publish;                          // collective; the engine then serves this version
    std::function<bool()> weights_match;  // collective: engine and trainer hold equal bytes
    Recorder& recorder;
    // For model FLOPs utilisation; without them it is not reported.
    const model::ModelConfig* model = nullptr;
    double product_rate = 0;  // FLOP/s of all ranks together, measured
};

struct LoopResult {
    std::int64_t sft_steps = 0;
    std::int64_t grpo_steps = 0;
    HeldOutResult first, last;
    std::int64_t weight_version = 0;  // number of syncs
    bool weights_match = false;
    double logprob_max_abs_diff = 0;  // engine against trainer, over all rollouts
    std::vector<SyncTimes> syncs;
    std::int64_t trained_tokens = 0;
    std::int64_t generated_tokens = 0;
    double train_seconds = 0;
    double generate_seconds = 0;
    double reinforce_flops = 0;    // model FLOPs of the updates
    double reinforce_seconds = 0;  // that they took
    double product_rate = 0;
    double seconds = 0;
};

// Throws what its parts throw; ProtocolError when a sample was made by other weights than the last published
// ones.
LoopResult run_loop(const RunConfig& config, const LoopParts& parts);

}  // namespace tandem::trainer
