// weights_match: compares the engines' weights with the trainer's, by another path than the strategy's.
#pragma once

#include "sync/session/session.h"
#include "sync/session/setup.h"

namespace tandem::sync {

// Collective over the world and the tensors' meshes. `engines` are rank 0's, none elsewhere.
WeightsMatch compare_weights(comm::Communicator& world, const WeightSource& source, const Setup& setup,
                             const Engines& engines, std::chrono::milliseconds deadline);

}  // namespace tandem::sync
