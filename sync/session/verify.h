// weights_match: what the engines hold against what the trainer holds, apart from the strategy's own path.
#pragma once

#include "sync/session/session.h"
#include "sync/session/setup.h"

namespace tandem::sync {

// Collective over the world and the tensors' meshes. `engines` are rank 0's, none elsewhere.
WeightsMatch compare_weights(comm::Communicator& world, const WeightSource& source, const Setup& setup,
                             const Engines& engines, std::chrono::milliseconds deadline);

}  // namespace tandem::sync
