// The calling thread, and what it starts, may run on two cores only: as many as a job of two or four ranks shares evenly, so
// that its buckets go by a relay (sync/strategy/rank_cores.h) on any machine that has two.
#pragma once

#include <sched.h>

#include "common/cores.h"

namespace tandem::test {

class OnTwoCores {
  public:
    OnTwoCores() {
        ::sched_getaffinity(0, sizeof(before_), &before_);
        const std::vector<int> cores = usable_cores();
        there_are_ = cores.size() >= 2;
        cpu_set_t two;
        CPU_ZERO(&two);
        for (std::size_t i = 0; i < cores.size() && i < 2; ++i)
            CPU_SET(static_cast<std::size_t>(cores[i]), &two);
        ::sched_setaffinity(0, sizeof(two), &two);
    }
    ~OnTwoCores() { ::sched_setaffinity(0, sizeof(before_), &before_); }
    OnTwoCores(const OnTwoCores&) = delete;
    OnTwoCores& operator=(const OnTwoCores&) = delete;
    bool there_are() const { return there_are_; }

  private:
    cpu_set_t before_;
    bool there_are_ = false;
};

}  // namespace tandem::test
