// The data path to one engine at bucket granularity: stage memory and plan once, then post → poll or wait for
// each bucket. Control (begin, verify, adopt, commit, abort) is the Engine's; a transport only moves bytes
// and says when their memory may be written again.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "common/deadline.h"
#include "common/device/stream.h"
#include "engine_adapter/engine.h"

namespace tandem::engine {

// Used by one thread at a time.
class Transport {
  public:
    virtual ~Transport() = default;
    virtual const std::string& peer() const = 0;

    // The engine can reach the regions from here on, and knows which bytes of them make each bucket, until
    // another stage() or the transport's end. Throws ProtocolError naming the tensor when the plan does not
    // fit the engine or the regions.
    virtual void stage(const std::vector<Region>& regions, const TransferPlan& plan, Deadline deadline) = 0;
    // A bucket of the plan lies ready; `checksums` belong to its transfers. Returns without waiting for the
    // engine. The number is free again after its wait. Throws TransportError (peer gone), InvalidArgument (no
    // such bucket, wrong number of checksums, number in flight).
    virtual void post(int bucket, std::span<const ops::Checksum> checksums, Deadline deadline) = 0;
    // The same for encoded changes in region 0; `bucket` is any number not in flight.
    virtual void post_delta(int bucket, std::span<const DeltaEntry> entries, Deadline deadline) = 0;
    // failed: wait will throw.
    virtual Poll poll(int bucket) = 0;
    // Returns the engine's milliseconds of copying when its bytes lie verified in the engine's weights; after
    // that, or after a throw, the memory is the trainer's again. ProtocolError: refused or corrupted, names
    // tensor, rank and bucket.
    virtual double wait(int bucket, Deadline deadline) = 0;
    // Forgets what is still in flight, after an abort that the engine has acknowledged.
    virtual void release() = 0;
};

}  // namespace tandem::engine
