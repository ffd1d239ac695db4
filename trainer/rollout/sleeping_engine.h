// What EngineMemory has of an engine: one kind's way of giving its memory away and taking it back.
#pragma once

namespace tandem::trainer {

// Every call blocks, and throws TransportError or DeadlineExceeded naming the engine.
class SleepingEngine {
  public:
    virtual ~SleepingEngine() = default;
    virtual bool asleep() const { return false; }  // as it was found
    // Returns whether it sleeps: no where somebody else has paused it.
    virtual bool sleep() = 0;
    virtual void wake_weights() = 0;
    virtual void wake_cache() = 0;
};

}  // namespace tandem::trainer
