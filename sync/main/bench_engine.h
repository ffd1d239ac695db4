// The engine's side of `tandem-sync bench`: a process for each engine rank, which holds weights and computes
// nothing.
#pragma once

#include "sync/bench/bench_options.h"

namespace tandem::sync {

// Prints where the rank's receiver listens, then serves until standard input ends. Returns the exit code.
int bench_engine(const BenchOptions& options, int rank);

}  // namespace tandem::sync
