// Sums (and a maximum) of a few doubles over a group: statistics and norms. fp64 and in rank order, which the
// communicator's fp32 reductions are not.
#pragma once

#include <span>

#include "common/comm/communicator.h"

namespace tandem::trainer {

// values[i] := sum over ranks of values[i]; the same bits on every rank. Blocking, collective.
void reduce_sums(std::span<double> values, comm::Communicator& group);
double max_over(double value, comm::Communicator& group);

}  // namespace tandem::trainer
