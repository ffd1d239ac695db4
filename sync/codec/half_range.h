// Before a push into engines that hold float16: values of the trainer's that it cannot hold (65520 and more),
// which the cast would make infinite.
#pragma once

#include <set>
#include <string>

#include "sync/plan/reshard.h"
#include "sync/weight_source.h"

namespace tandem::sync {

class HalfRange {
  public:
    explicit HalfRange(const ReshardPlan& plan);
    // Reads all of this rank's shards that become float16 (a GPU's come to the host in pieces). Throws Error
    // naming the tensor, the element and its value; what is infinite or NaN already passes.
    void check(const WeightSource& source) const;

  private:
    std::set<std::string> names_;  // of the source's tensors that are cast to float16
};

}  // namespace tandem::sync
