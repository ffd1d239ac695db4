// The train prompts that a step takes: a pure function of seed, step and count, so that every rank and every
// resumed run draws the same without communication. A task chooses one of two ways.
//
//   with replacement   `count` independent draws from the stream (seed, purpose, step)
//   in epochs          step s takes places s·count … (s+1)·count - 1 of an endless row of permutations of the
//                      train set, epoch e's from the stream (seed, epoch, e): each prompt once an epoch
#pragma once

#include <cstdint>
#include <vector>

#include "trainer/data/task.h"

namespace tandem::trainer {

class PromptOrder {
  public:
    PromptOrder(const Task& task, std::uint64_t seed) : task_(task), seed_(seed) {}

    // Indices of train prompts. `random` is the step's stream; draws with replacement advance it, epochs do
    // not.
    std::vector<std::int64_t> take(std::int64_t step, std::int64_t count, Random& random);

  private:
    std::int64_t at(std::int64_t place);

    const Task& task_;
    std::uint64_t seed_;
    std::int64_t epoch_ = -1;  // whose permutation is kept
    std::vector<std::int64_t> permutation_;
};

}  // namespace tandem::trainer
