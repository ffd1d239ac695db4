// The training loop: a supervised warm start, then generate -> reward -> advantages -> pack ->
// forward/backward -> optimizer -> sync. It knows a learner, an engine behind HTTP and a host that publishes
// weights; what a mesh, a bucket or an engine process is, it does not know. Every rank runs it with the same
// inputs and comes to the same result.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/comm/communicator.h"
#include "trainer/config/config.h"
#include "trainer/data/task.h"
#include "trainer/loop/loop_state.h"
#include "trainer/policy/learner.h"
#include "trainer/report/recorder.h"
#include "trainer/rollout/rollouts.h"

namespace tandem::trainer {

// What the loop's steps mean to the rank that runs it. All calls are collective.
class LoopHost {
  public:
    virtual ~LoopHost() = default;
    virtual void before_training() = 0;                         // no rollout until the next publish
    virtual SyncTimes publish(std::int64_t version) = 0;        // the engine then serves this version
    virtual std::optional<bool> weights_match() = 0;            // none: the engine cannot say what it holds
    virtual void write_checkpoint(const LoopState& state) = 0;  // every checkpoint.every steps
};

struct LoopParts {
    comm::Communicator& world;
    const Task& task;
    Learner& learner;
    Rollouts& rollouts;
    LoopHost& host;
    Recorder& recorder;
    // For model FLOPs utilisation; without them it is not reported.
    const model::ModelConfig* model = nullptr;
    double product_rate = 0;  // FLOP/s of all ranks together, measured
};

// From `start` on: the beginning, or where a checkpoint was made. Throws what its parts throw; ProtocolError
// when a sample was made by other weights than the last published ones.
LoopResult run_loop(const RunConfig& config, const LoopParts& parts, const LoopState& start = {});

}  // namespace tandem::trainer
