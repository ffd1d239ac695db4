// The bookkeeping of one open version: which bytes of which tensor have arrived, with which checksum. Pure:
// moves nothing.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "engine_adapter/receiver/weight_target.h"
#include "engine_adapter/transport/shm/wire.h"

namespace tandem::engine {

class Update {
  public:
    Update(const std::vector<WeightSlot>& weights, std::int64_t version);

    std::int64_t version() const { return version_; }
    // Checks every entry of a bucket and notes it: a known tensor, at least one byte, inside the tensor and
    // inside a slot of slot_bytes, nothing that arrived before. Throws ProtocolError naming tensor, rank and
    // bucket.
    void admit(int bucket, std::span<const wire::Entry> entries, std::size_t slot_bytes);
    // Every byte of every tensor has arrived exactly once. Throws ProtocolError naming the first tensor with
    // a gap.
    void require_whole() const;
    // Of what has arrived; engine.h says how it is made. Call require_whole first.
    ops::Checksum manifest() const;
    // "bucket 3: tensor 'x' bytes [0, 64) from rank 1", for messages.
    std::string describe(int bucket, const wire::Entry& entry) const;

  private:
    struct Run {
        std::uint64_t end = 0;
        ops::Checksum checksum;
    };
    const std::vector<WeightSlot>& weights_;
    std::int64_t version_;
    std::vector<std::map<std::uint64_t, Run>> arrived_;  // [tensor]: start -> run, disjoint
};

}  // namespace tandem::engine
