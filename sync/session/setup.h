// What a session works out once: who holds what and who wants what, and the plan that follows from it; equal
// on every rank.
#pragma once

#include <vector>

#include "sync/codec/scales.h"
#include "sync/plan/reshard.h"
#include "sync/strategy/collectives.h"
#include "sync/strategy/engines.h"
#include "sync/strategy/options.h"
#include "sync/weight_source.h"

namespace tandem::sync {

// Where `session` options leave the choice to the machine.
SessionOptions choose(SessionOptions options, Device device = {});

// Where this rank's shards lie. Throws InvalidArgument: on several devices.
Device device_of(const WeightSource& source);

struct Setup {
    ReshardPlan plan;
    std::vector<int> local;  // plan's source tensor → index in this rank's source, -1: not here
    std::vector<QuantizedTensor> quantized;
};

// Collective. `engines` are rank 0's, none elsewhere. Throws SyncError on every rank; among others where
// weights are on GPUs here and not there, or a mode cannot bring them from there.
Setup make_setup(comm::Communicator& world, const WeightSource& source, const Engines& engines,
                 const SessionOptions& options);

}  // namespace tandem::sync
