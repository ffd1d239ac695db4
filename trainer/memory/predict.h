// Peak memory of rank 0, which has the largest part of all that is cut, known beforehand: the training passes are walked on paper, in the order in which the
// code takes and drops its buffers. No tensor is made.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "common/model/model_config.h"
#include "trainer/memory/layer_ledger.h"
#include "trainer/memory/ledger.h"
#include "trainer/policy/options.h"

namespace tandem::trainer::memory {

// The ranks that a rank shares its parameters with.
struct RankShape {
    int shards = 1;    // ranks that a parameter, or this rank's part of tp's cut, is sharded over
    int replicas = 1;  // ranks that hold the same shard; those of tp that hold the same part not counted
    int cp = 1;
    int tp = 1;
};

// The largest micro-batches that a rank runs, and what comes with them.
struct Workload {
    std::vector<PassShape> train;   // the largest ones, where none covers all
    std::vector<PassShape> scores;  // forward only
    int micro_batches = 1;
    std::int64_t score_tokens = 0;  // of the batch whose log-probs are asked for, over all ranks
    bool reference = false;
    std::map<std::string, std::int64_t> sync;  // bytes by tag that a sync holds on a rank
};

struct Prediction {
    std::map<std::string, MemoryPeak> phases;
    std::string phase;  // the one with the highest peak

    const MemoryPeak& peak() const { return phases.at(phase); }
};

Prediction predict(const model::ModelConfig& model, const PolicyOptions& options, const RankShape& rank,
                   const Workload& work);

}  // namespace tandem::trainer::memory
