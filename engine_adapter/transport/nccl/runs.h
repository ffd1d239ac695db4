// A bucket's bytes as they travel: the runs of region memory that its transfers read, packed one behind the
// other. Both ends derive them from the plan, so they are in no message. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine_adapter/engine.h"

namespace tandem::engine {

struct Run {
    std::uint32_t region = 0;
    std::uint64_t offset = 0;  // in the region
    std::uint64_t bytes = 0;
    std::uint64_t packed = 0;  // where it lies on arrival
    friend bool operator==(const Run&, const Run&) = default;
};

struct Runs {
    std::vector<Run> list;    // in the order of region and offset; apart from each other
    std::uint64_t bytes = 0;  // of memory that holds them all
    // Where a byte lies on arrival that one of the transfers reads.
    std::uint64_t packed(std::uint32_t region, std::uint64_t offset) const;
};

// Of transfers that lie inside their regions. The rows of a transfer stay as far apart as they are, and what
// is between them travels too; runs with a small gap between them are one. Throws
// ProtocolError when there are too many: each is a call of NCCL.
Runs runs_of(std::span<const Transfer> bucket);

}  // namespace tandem::engine
