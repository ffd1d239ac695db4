// The work of a configured run that takes the most memory: its first batches are drawn and packed as the loop will draw and
// pack them, with answers as long as they may become; of their packs the largest of any rank are kept.
#pragma once

#include <cstdint>
#include <vector>

#include "trainer/config/config.h"
#include "trainer/data/task.h"
#include "trainer/memory/predict.h"
#include "trainer/pipeline/plan.h"

namespace tandem::trainer::memory {

// One pass of one rank.
struct PassShape {
    std::int64_t rows = 0;     // of hidden states on this rank
    std::int64_t targets = 0;  // of them that predict something
    bool zigzag = false;
};

struct Workload {
    Work work;  // without what a sync holds
    // For the reader: the largest passes of training, where none covers all, and how many a rank has in a batch.
    std::vector<PassShape> largest;
    int micro_batches = 1;
    int cp_rank = 0;  // whose passes they are: the one with the most targets
};

Workload workload_of(const RunConfig& config, const Task& task, const PolicyOptions& options,
                     const model::ModelConfig& model);

// The fewest micro-batches of one batch, at most `all`, in which every rank of the pipeline comes through all states that it
// comes through with `all`: how many it holds of each of its stages.
int enough_micro_batches(const pipeline::Plan& plan, int all);

}  // namespace tandem::trainer::memory
