// What the receiver needs of the engine it runs in: the memory of its weights and a switch between versions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/device/device.h"
#include "engine_adapter/engine.h"

namespace tandem::engine {

struct WeightSlot {
    TensorInfo info;
    Span memory;  // where the engine reads the weight; stable for the engine's whole life
};

// Called from the receiver's thread. Implementations are thread-safe against the engine's own threads.
class WeightTarget {
  public:
    virtual ~WeightTarget() = default;
    virtual const std::vector<WeightSlot>& weights() const = 0;
    virtual std::int64_t version() const = 0;  // 0: no whole version

    // The weights are about to be overwritten: from here until commit the engine refuses to generate. Throws
    // InvalidArgument unless generation is paused.
    virtual void begin_update(std::int64_t version) = 0;
    // A whole, verified version is in place: samples from here on carry it; unfinished requests restart from
    // their prompt.
    virtual void commit_update(std::int64_t version) = 0;
    // The update failed. dirty: some weights were overwritten, so the engine keeps refusing, and says
    // `reason`, until a later commit. Not dirty: the old version serves on.
    virtual void abort_update(const std::string& reason, bool dirty) = 0;
};

}  // namespace tandem::engine
