// How fast this engine copies and hashes a trainer's memory, for the trainer's cost model: copies a stretch
// of it, split in pieces, to memory that nothing reads.
#pragma once

#include <cstdint>

#include "common/device/memory.h"
#include "engine_adapter/receiver/attachment.h"
#include "engine_adapter/receiver/relay_lanes.h"
#include "engine_adapter/receiver/weight_writer.h"

namespace tandem::engine {

class CopyProbe {
  public:
    // Milliseconds. cores: that wrote equal parts of it; none: not known. Throws BadInput: no bytes, or pieces of no
    // bytes or too many.
    double measure_ms(ConstSpan from, std::uint64_t piece_bytes, WeightWriter& writer,
                      std::span<const std::int64_t> cores = {});
    // The same of a relay, in which each engine takes an equal part of what each rank writes. Throws BadInput, too, when the
    // slots are not in the attached memory.
    double relay_ms(const RelayOrder& order, const RelayProbe& probe, const Attachment& attached,
                    WeightWriter& writer);
    void free_memory() { memory_ = {}; }

  private:
    void make_memory(std::uint64_t bytes);
    Buffer memory_;
    std::uint64_t copied_ = 0;  // bytes so far
};

}  // namespace tandem::engine
