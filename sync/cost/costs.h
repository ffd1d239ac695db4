// The costs of a push, as calibrate.h measures them and predict.h uses them. Plain data and its JSON.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <span>

namespace tandem::sync {

// Time of one bucket: a part that every bucket costs, and one that grows with its bytes, at one rate where
// all of staging stays in the last-level cache and is written through it, and at another where it is written
// past it. Which is higher is the machine's affair. All ranks (or engines) work on one bucket together.
struct Stage {
    double overhead_ms = 0;
    double cached_gbps = 0;
    double streamed_gbps = 0;

    double ms(double bytes, bool cached) const {
        return overhead_ms + bytes / (cached ? cached_gbps : streamed_gbps) * 1e-6;
    }
};

struct Costs {
    Stage fill;      // the ranks writing a bucket and meeting, engines idle
    Stage load;      // the engines taking a bucket, ranks idle
    Stage both;      // fill of one and load of another at once: one step of the pipeline
    Stage lockstep;  // such a step at depth 2, where each waits for the other
    Stage turns;     // fill and then load of the same slot, at depth 1
    Stage relay;     // the same by a relay (strategy/relay.h), at any depth; rates of 0: engines take none
    double hash_gbps = 0;          // all ranks checksumming their shards
    double copy_gbps = 0;          // … copying them, without a checksum, past the cache
    double core_ns = 0;            // cores.h's distance of ranks 0 and 1 meanwhile; 0: unknown
    double fixed_ms = 0;           // of a version without buckets: opened, committed
    std::size_t cache_bytes = 0;   // last-level cache; half of it may be staging
    double took_ms = 0;            // to measure
    std::int64_t measured_at = 0;  // seconds since 1970

    bool relays() const { return relay.cached_gbps > 0; }
};

// Staging that a bucket is measured in, and what it took, in milliseconds.
struct StagePoint {
    double bytes = 0;
    double ms = 0;
};
// `small` and `large` written past the cache, `cached` through it.
Stage fit_stage(const StagePoint& small, const StagePoint& large, const StagePoint& cached);

nlohmann::json to_json(const Costs& costs);
// Throws InvalidArgument: a field is missing, or a rate is not positive.
Costs costs_from_json(const nlohmann::json& json);

}  // namespace tandem::sync
