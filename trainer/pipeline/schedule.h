// Which rank of a pipeline does what, in which order: the schedules of PyTorch 2.13 by name. Pure: nothing runs here.
#pragma once

#include <string>
#include <vector>

#include "trainer/pipeline/action.h"

namespace tandem::pipeline {

using ActionList = std::vector<Action>;  // of one rank, which walks it from the front

struct Schedule {
    int microbatches = 0;
    std::vector<int> rank_of_stage;  // [stage]
    std::vector<ActionList> ranks;   // [rank]

    int stages() const { return static_cast<int>(rank_of_stage.size()); }
};

// GPipe, 1F1B, Interleaved1F1B, LoopedBFS, InterleavedZeroBubble, ZBVZeroBubble, DualPipeV.
std::vector<std::string> schedule_names();
// As it is written above, of a name in upper or lower case, as PyTorch takes it. Throws BadInput naming those that there are.
std::string schedule_name(const std::string& name);

// Of the stages, as the schedule places them: around the ranks again and again, or there and back.
std::vector<int> ranks_of_stages(const std::string& name, int ranks, int stages_per_rank);
// That the schedule has a rank, if it is not told: 1, or 2 for those that are made for several.
int usual_stages_per_rank(const std::string& name);
// The least number of micro-batches from `least` on that it admits. Throws BadInput for stages a rank that it does not take.
int admitted_microbatches(const std::string& name, int ranks, int stages_per_rank, int least);

// Compute actions alone (lower.h adds the others). Throws BadInput for what PyTorch refuses, naming what would be admitted, and
// for more than 2^20 forwards in all.
Schedule make_schedule(const std::string& name, int ranks, int stages_per_rank, int microbatches);

}  // namespace tandem::pipeline
