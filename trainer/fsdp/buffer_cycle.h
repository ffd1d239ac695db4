// Buffers that are used again and again: first touch of fresh memory is what is slow, so nothing is given
// back to the system. A buffer comes back with the event after which it is free.
#pragma once

#include <cstddef>
#include <deque>
#include <map>
#include <string>

#include "common/device/stream.h"
#include "common/tensor/tensor.h"

namespace tandem::trainer {

class BufferCycle {
  public:
    static constexpr int kTurns = 2;  // of a size on a GPU: one is filled while the other is used

    BufferCycle(std::string tag, MemoryPool& pool) : tag_(std::move(tag)), pool_(&pool) {}

    // [numel] of dtype, contents undefined. `user` is the stream that will write it first.
    Tensor take(std::int64_t numel, DType dtype, Stream& user);
    // `least` buffers of this size are made before one is used again, and then its taker waits for it rather than make
    // another: what a pass holds is the same whether work ends sooner or later.
    void make_at_least(int least, std::int64_t numel, DType dtype) { sizes_[{numel, dtype}].least = least; }
    void give_back(Tensor buffer, Event free_after);
    void free();  // what is not in use goes back to the pool, its pages to the system

  private:
    struct Waiting {
        Tensor buffer;
        Event free_after;
    };
    struct OfOneSize {
        int made = 0;
        int least = 0;
        std::deque<Waiting> waiting;  // oldest first
    };

    std::string tag_;
    MemoryPool* pool_;
    std::map<std::pair<std::int64_t, DType>, OfOneSize> sizes_;
};

}  // namespace tandem::trainer
