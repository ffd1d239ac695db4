// Predicts a push from measured costs, and chooses the buckets that make it fastest. Pure.
#pragma once

#include <cstddef>
#include <cstdint>

#include "sync/cost/costs.h"

namespace tandem::sync {

enum class CostModel : std::uint8_t { none, gather, direct };  // of a mode

struct Prediction {
    double prepare_ms = 0;
    double total_ms = 0;  // pause to resume
};

// Gather: the ranks fill, the engines take, `depth` slots between them (sync/gather/gather.cpp has the
// order). Plays the pipeline step by step: while both sides work, both are as slow as Costs::both says, which
// is half as fast where they share all cores and unhindered where each has its own. past_cache: staging that
// would stay in the cache is written past it.
Prediction predict_gather(const Costs& costs, std::size_t bytes, std::size_t bucket_bytes, int depth,
                          bool past_cache = false);
// Direct: the shards are hashed, then the engines read them; nothing is staged.
Prediction predict_direct(const Costs& costs, std::size_t bytes, std::size_t bucket_bytes);

struct Buckets {
    std::size_t bytes = 0;
    int depth = 0;
    bool past_cache = false;  // written past the cache, also where they would stay in it
};

// The fastest whole push (prepare counted: it is the trainer's time) among buckets of 1 to 128 MiB and depths
// 1 to 4, through the cache or past it; of those within 5% of it, which is as well as one measures, those with least staging
// to a power of two, and of these the one with the fewest buckets: each costs more than measuring few of them shows.
// What `requested` names is kept (0: free).
Buckets choose_buckets(const Costs& costs, std::size_t bytes, const Buckets& requested = {});

}  // namespace tandem::sync
