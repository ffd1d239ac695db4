// From a compute list to what a rank really does: gathers and lets go of parameters, sends, receives, sums gradients. The rules
// are PyTorch 2.13's; lists of other origin are held to check.h, not to these.
#pragma once

#include "trainer/pipeline/schedule.h"

namespace tandem::pipeline {

// The three passes below, in this order, on every rank. Throws BadInput where the compute lists wait for one another.
Schedule lower(const Schedule& compute, int max_active_stages = 3);
// The other way: the compute actions alone.
Schedule compute_of(const Schedule& lowered);

// Before each action: UNSHARD of the next `max_active_stages` stages that have none yet (its own is the first), and RESHARD of
// those that are not among them; in the end RESHARD of all. PyTorch keeps them in a set, so the order of its RESHARDs is another.
ActionList add_unshard_reshard(const ActionList& list, int max_active_stages);
// REDUCE_GRAD after the last B or W of each stage.
ActionList add_reduce_grad(const ActionList& list, int microbatches);
// SEND after what another rank waits for, and at once the RECV at the end of that rank's list, which goes on when it has its
// inputs: so SENDs and RECVs of two ranks have one order.
std::vector<ActionList> add_send_recv(const std::vector<ActionList>& ranks,
                                      const std::vector<int>& rank_of_stage, int microbatches);

}  // namespace tandem::pipeline
