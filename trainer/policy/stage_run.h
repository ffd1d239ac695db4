// One rank's walk through its list of a pipeline's schedule: receives what an action needs, does it, and sends what it made.
#pragma once

#include <functional>

#include "common/comm/communicator.h"
#include "common/device/stream.h"
#include "common/tensor/tensor.h"
#include "trainer/pipeline/schedule.h"

namespace tandem::trainer {

// What a stage does of a micro-batch. Tensors are hidden states between stages, or their gradients; undefined where no stage is
// before or behind.
struct StageWork {
    std::function<Tensor(int microbatch, Tensor x)> forward;
    std::function<Tensor(int microbatch, Tensor dy)> backward;
    std::function<Tensor(int microbatch)> room;  // for what will be received
};

// `list`: F and B of stage i on rank i of `pipeline`. What the last action made and what the next one needs travel in one batch,
// so that two ranks that send to each other do not wait for one another. Blocking, collective over `pipeline`. Throws what a
// communicator throws, with stage and action before it.
void run_stage(const pipeline::ActionList& list, comm::Communicator& pipeline, Stream& compute,
               const StageWork& work);

}  // namespace tandem::trainer
