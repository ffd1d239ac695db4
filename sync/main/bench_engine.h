// The engine's side of `tandem-sync bench`: a process for each engine rank, which holds weights and computes
// nothing.
#pragma once

#include "sync/bench/bench_options.h"

namespace tandem::sync {

// Prints where the rank's receiver listens, then serves until standard input ends. Returns the exit code. To each line
// of input it answers with one: {"version": N, "tensors": {NAME: XXH3-128 of its bytes and of the zeros behind them}}
// of what it reads now (weights of the CPU only). Ask while no push is under way.
int bench_engine(const BenchOptions& options, int rank);

}  // namespace tandem::sync
