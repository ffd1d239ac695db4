// What a session works out once: the plan, equal on every rank, and the staging arena that all ranks of the
// host share.
#pragma once

#include <vector>

#include "sync/gather/gather.h"
#include "sync/gather/staging.h"
#include "sync/session/session.h"

namespace tandem::sync {

// Where `session` options leave the choice to the machine.
SessionOptions choose(SessionOptions options);

struct Setup {
    Plan plan;
    std::vector<std::size_t> order;  // plan's tensor → index in the source
};

// Collective. `engine` is rank 0's, null elsewhere. Throws SyncError on every rank.
Setup make_setup(comm::Communicator& world, const WeightSource& source, const engine::Engine* engine,
                 const SessionOptions& options);

// Collective: rank 0 makes the arena and tells the engine, the others map it. Throws SyncError on every rank.
Staging make_staging(comm::Communicator& world, const Plan& plan, engine::Engine* engine,
                     const SessionOptions& options);

}  // namespace tandem::sync
