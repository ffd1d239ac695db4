// Receives a bucket's bytes where no region that holds them is mapped here, into slots that take turns, so that the
// next bucket arrives while the copies still read this one. Over NCCL:
//
//   NCCL's stream   receive 0 → slot a   receive 1 → slot b         wait for (read 0), receive 2 → slot a
//   copies                               wait for (arrived 0),      wait for (arrived 1),
//                                        copy 0, record (read 0)    copy 1, record (read 1)
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "common/device/stream.h"
#include "engine_adapter/engine.h"

namespace tandem::engine {

class BucketReceiver {
  public:
    virtual ~BucketReceiver() = default;
    // Returns when the bytes of a bucket of the plan are here: over NCCL on the weights' GPU, over TCP in host memory. Throws.
    virtual void receive(int bucket) = 0;
    // Where one of its transfers lies, the `index`th of the bucket.
    struct Arrived {
        const std::byte* data;
        std::uint64_t stride;  // bytes from row to row
    };
    virtual Arrived at(std::size_t index, const Transfer& transfer) const = 0;
    // The copies wait for this on their stream.
    virtual Event arrived() const = 0;
    // The copies have been launched and end at `done`: the slot is free for another bucket behind that.
    virtual void release_after(const Event& done) = 0;
    // Called now and then while the copies run. Throws when the bucket is not wanted any more.
    virtual void check() = 0;
};

// The same for a bucket of changes.
class ChangesReceiver {
  public:
    virtual ~ChangesReceiver() = default;
    virtual void receive() = 0;  // as above
    // Where the encoding of its `index`th entry lies, in memory that nobody else writes.
    virtual const std::byte* at(std::size_t index) const = 0;
};

// A flag that says, while this lives, that bytes are waited for.
class WaitsForBytes {
  public:
    explicit WaitsForBytes(bool& flag) : flag_(flag), before_(std::exchange(flag, true)) {}
    ~WaitsForBytes() { flag_ = before_; }
    WaitsForBytes(const WaitsForBytes&) = delete;
    WaitsForBytes& operator=(const WaitsForBytes&) = delete;

  private:
    bool& flag_;
    const bool before_;
};

}  // namespace tandem::engine
