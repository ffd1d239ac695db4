// Measures costs (costs.h) with the session's own ranks, engines and means: the same copies, pieces, exchange
// and staging as a push by gather, from this rank's shards, and to memory that is not read (Engine::probe).
#pragma once

#include <vector>

#include "common/comm/communicator.h"
#include "common/tensor/dtype.h"
#include "sync/cost/costs.h"
#include "sync/strategy/bucket_sizes.h"
#include "sync/strategy/engines.h"

namespace tandem::sync {

struct CalibrationOptions {
    std::vector<ConstSpan> shards = {};  // that are read; too few: memory of its own
    DType from = DType::bfloat16;        // as the trainer holds it
    DType to = DType::bfloat16;          // as the engine does
    // Of the last level: buckets are measured within it and past it.
    std::size_t cache_bytes = last_level_cache_bytes();
    std::chrono::milliseconds budget{500};  // of the measuring, set-up excluded; one round is always made
    std::chrono::milliseconds deadline{30'000};  // of each request to an engine
};

// Collective; the same costs on every rank. `engines` are rank 0's, none elsewhere; they must be idle and are
// left so, attached to memory that is gone: attach before the next use. Throws SyncError on every rank.
Costs calibrate(comm::Communicator& world, const Engines& engines, const CalibrationOptions& options);

}  // namespace tandem::sync
