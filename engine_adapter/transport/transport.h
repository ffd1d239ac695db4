// The data path to one engine at bucket granularity: stage memory once, then post → poll or wait for each
// bucket. Control (begin, commit, abort) is the Engine's; a transport only moves bytes and says when a slot
// may be filled again.
#pragma once

#include <string>

#include "common/deadline.h"
#include "common/device/stream.h"
#include "engine_adapter/engine.h"

namespace tandem::engine {

// Used by one thread at a time.
class Transport {
  public:
    virtual ~Transport() = default;
    virtual const std::string& peer() const = 0;

    // The engine can reach `staging` from here on, until another stage() or the transport's end.
    virtual void stage(const StagingArea& staging, Deadline deadline) = 0;
    // Hands over a filled slot; returns without waiting for the engine. The bucket's index is free to be used
    // again after its wait. Throws TransportError (peer gone), InvalidArgument (unknown tensor, index in
    // flight).
    virtual void post(const Bucket& bucket, Deadline deadline) = 0;
    // failed: wait will throw.
    virtual Poll poll(int index) = 0;
    // Returns the engine's milliseconds of copying when its bytes lie verified in the engine's weights; after
    // that, or after a throw, the slot is the trainer's again. ProtocolError: refused or corrupted, names
    // tensor, rank and bucket.
    virtual double wait(int index, Deadline deadline) = 0;
    // Forgets what is still in flight, after an abort that the engine has acknowledged.
    virtual void release() = 0;
};

}  // namespace tandem::engine
