// weights_match: what the engine holds against what the trainer holds, apart from the sync's own way.
#pragma once

#include "sync/session/session.h"

namespace tandem::sync {

// Collective over the world and the tensors' meshes. `engine` is rank 0's, null elsewhere.
WeightsMatch compare_weights(comm::Communicator& world, const WeightSource& source, const Plan& plan,
                             const std::vector<std::size_t>& order, engine::Engine* engine,
                             std::chrono::milliseconds deadline);

}  // namespace tandem::sync
