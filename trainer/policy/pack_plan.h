// How a policy packs its samples: what a sample takes, and which form of context attention a pack gets.
#pragma once

#include <cstdint>
#include <vector>

#include "trainer/data/packing.h"
#include "trainer/policy/policy.h"

namespace tandem::trainer {

// Of every one of `batch_ranks` ranks, its packs in turn.
std::vector<std::vector<Pack>> pack_plan(const PolicyOptions& options, int cp, int batch_ranks,
                                         const std::vector<Sample>& samples);

bool use_zigzag(const PolicyOptions& options, int cp, const Pack& pack);

}  // namespace tandem::trainer
