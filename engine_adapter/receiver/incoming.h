// Bytes of a bucket that lie in no region this process maps: they are brought when the bucket is announced.
#pragma once

#include "engine_adapter/engine.h"

namespace tandem::engine {

class Incoming {
  public:
    virtual ~Incoming() = default;
    // Returns when the bytes of a bucket of the plan are on the weights' device. Throws.
    virtual void bring(int bucket) = 0;
    // Where the first byte of one of its transfers lies, until the next bring; row strides are the plan's.
    virtual const std::byte* at(const Transfer& transfer) const = 0;
};

}  // namespace tandem::engine
