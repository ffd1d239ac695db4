// The report's part about completions: their lengths, how much there is to learn from them, and some to read.
#pragma once

#include <string>

#include "trainer/report/curves.h"

namespace tandem::trainer {

// Charts; empty where a run has no such figures.
std::string rollout_charts(const Lines& metrics);
// samples: the lines of samples.jsonl. Greedy completions of held-out prompts before and after, then
// completions of some of the steps. Empty without samples.
std::string samples_html(const Lines& samples);

}  // namespace tandem::trainer
