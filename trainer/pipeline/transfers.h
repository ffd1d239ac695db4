// What goes from stage to stage: which action waits for which, and what travels between ranks.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "trainer/pipeline/schedule.h"

namespace tandem::pipeline {

struct Transfer {
    Action send, recv;
    int from, to;  // ranks
};

// What another rank needs of a compute action of one stage: a forward's output, or the gradient of its input. Nothing where the
// neighbour is on the same rank (the turn of a V), or there is none.
std::optional<Transfer> transfer_after(const Action& action, const std::vector<int>& rank_of_stage);
// That of a SEND or RECV, or nothing where stages have no such transfer.
std::optional<Transfer> transfer_of(const Action& send_or_recv, const std::vector<int>& rank_of_stage);

// The inputs of forwards and backwards: which are there, and since when.
class Inputs {
  public:
    Inputs(int stages, int microbatches);
    // When what an action of one stage needs of another came; below 0: not yet. 0 where it needs nothing.
    double came(const Action& action) const;
    bool has(const Action& action) const { return came(action) >= 0; }
    // A forward or backward has run, so its neighbour's input is there; another action changes nothing.
    void finish(const Action& action, double when = 0);
    // By a RECV. Returns false if it was there already.
    bool receive(const Action& recv);

  private:
    std::size_t at(int stage, int microbatch) const;

    int stages_, microbatches_;
    std::vector<double> forward_, backward_;  // [stage][micro-batch]
};

}  // namespace tandem::pipeline
