// Proof that lists can run: what PyTorch checks of a schedule, and what it leaves to the run, which then hangs.
#pragma once

#include "trainer/pipeline/schedule.h"

namespace tandem::pipeline {

// Lists of compute actions: every stage on one rank; of every stage and micro-batch one F, then one B or one I and one W; no
// ranks that wait for one another forever. Throws BadInput naming rank, place and action.
void check_compute(const Schedule& compute);

// Lists with everything that a rank does:
//   - their compute actions are those of `compute`, which passes check_compute
//   - a stage is unsharded at its compute actions and REDUCE_GRAD, and sharded in the end; no UNSHARD or RESHARD changes nothing
//   - one REDUCE_GRAD a stage, after its last B or W
//   - a SEND follows its compute action, a RECV precedes the one that needs it, each once; none goes to the own rank
//   - from one rank to another, SENDs and RECVs have one order: nothing but the order tells transfers apart
//   - nobody waits forever where a RECV waits for its tensor, and a SEND while `channel_capacity` earlier ones of its direction
//     are on the way (0: until the RECV's turn has come). What runs so runs with any larger capacity
// Throws BadInput naming rank, place and action.
void check_lowered(const Schedule& lowered, const Schedule& compute, int channel_capacity = 0);

}  // namespace tandem::pipeline
