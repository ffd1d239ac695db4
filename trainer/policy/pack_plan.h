// Packing of a policy's samples, and the form of context attention that a pack gets.
#pragma once

#include <cstdint>
#include <vector>

#include "trainer/data/packing.h"
#include "trainer/data/sample.h"
#include "trainer/pipeline/plan.h"
#include "trainer/policy/options.h"

namespace tandem::trainer {

// The packs of each of `batch_ranks` ranks, in order. `admitted`, if any: the number of packs, from one that is needed on.
std::vector<std::vector<Pack>> pack_plan(const PolicyOptions& options, int cp, int batch_ranks,
                                         const std::vector<Sample>& samples, const PackCount& admitted = {});

// How many a pipeline takes: in training as its schedule admits; a pass forward takes any number, best no fewer than ranks.
// Null: there is none, and what is needed is made. The pipeline must outlive the result.
PackCount admitted_packs(const pipeline::Plan* pipeline, bool training);

bool use_zigzag(const PolicyOptions& options, int cp, const Pack& pack);

}  // namespace tandem::trainer
