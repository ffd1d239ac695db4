// The fate of a group's gathered values between its forward and its backward: true frees them, false
// keeps them, a number n keeps 1/n of them on each rank, so that the backward gathers over n neighbours only.
#pragma once

#include "common/error.h"

namespace tandem::trainer {

class ReshardAfterForward {
  public:
    ReshardAfterForward(bool reshard) : ranks_(reshard ? kAll : 1) {}
    ReshardAfterForward(int ranks) : ranks_(ranks) {
        enforce(ranks >= 1, "reshard_after_forward is {}: it must be a number of ranks, or true or false",
                ranks);
    }

    // Over how many of `shards` ranks the values then lie; 0: they stay whole. Throws InvalidArgument when
    // the number is not a factor of `shards`.
    int ranks(int shards) const {
        if (ranks_ == kAll) return shards;
        enforce(
            shards % ranks_ == 0,
            "reshard_after_forward is {}: it must be a factor of the {} ranks that parameters are sharded "
            "over",
            ranks_, shards);
        return ranks_ == 1 ? 0 : ranks_;
    }

  private:
    static constexpr int kAll = 0;
    int ranks_;
};

}  // namespace tandem::trainer
