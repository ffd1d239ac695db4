// Bytes of a bucket that lie in no region this process maps: they are brought when the bucket is announced,
// into rooms that take turns, so that the next bucket comes while the copies still read this one.
//
//   other stream   receive 0 → room a   receive 1 → room b   (reading 0) receive 2 → room a
//   copies                              (arrived 0) copy 0   (arrived 1) copy 1
// In brackets: the events that the next step waits for on its stream.
#pragma once

#include "common/device/stream.h"
#include "engine_adapter/engine.h"

namespace tandem::engine {

class BucketReceiver {
  public:
    virtual ~BucketReceiver() = default;
    // Returns when the bytes of a bucket of the plan are on the weights' device. Throws.
    virtual void bring(int bucket) = 0;
    // Where the first byte of one of its transfers lies; row strides are the plan's.
    virtual const std::byte* at(const Transfer& transfer) const = 0;
    // Its copies come behind this on their stream.
    virtual Event arrived() const = 0;
    // The copies are launched and over at `done`: what is brought next may come behind it into their room.
    virtual void reading(const Event& done) = 0;
    // Called now and then while the copies run. Throws when the bucket is not wanted any more.
    virtual void meanwhile() = 0;
};

}  // namespace tandem::engine
