// What a session works out once: who holds what and who wants what, and the plan that follows from it; equal
// on every rank.
#pragma once

#include <vector>

#include "sync/codec/scales.h"
#include "sync/plan/reshard.h"
#include "sync/push/agree.h"
#include "sync/push/engines.h"
#include "sync/push/options.h"
#include "sync/weight_source.h"

namespace tandem::sync {

// Where `session` options leave the choice to the machine.
SessionOptions choose(SessionOptions options);

struct Setup {
    ReshardPlan plan;
    std::vector<int> local;  // plan's source tensor → index in this rank's source, -1: not here
    std::vector<QuantizedTensor> quantized;
};

// Collective. `engines` are rank 0's, none elsewhere. Throws SyncError on every rank.
Setup make_setup(comm::Communicator& world, const WeightSource& source, const Engines& engines,
                 const SessionOptions& options);

}  // namespace tandem::sync
