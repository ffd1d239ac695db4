// Sums, means and a maximum of a few doubles over ranks: losses, statistics, norms. fp64 and in rank order,
// which the communicator's fp32 reductions are not; the same bits on every rank. Blocking, collective.
#pragma once

#include <optional>
#include <span>

#include "common/mesh/device_mesh.h"

namespace tandem {

// values[i] := sum over ranks of values[i].
void reduce_sums(std::span<double> values, comm::Communicator& group);
// NaN where a rank has NaN.
double max_over(double value, comm::Communicator& group);

// Over the ranks of a mesh of one axis, as ParallelDims::get_optional_mesh gives it; no mesh: the value itself. Throws
// InvalidArgument on a mesh of several axes: flatten it.
double dist_sum(double value, const std::optional<DeviceMesh>& mesh);
double dist_mean(double value, const std::optional<DeviceMesh>& mesh);
double dist_max(double value, const std::optional<DeviceMesh>& mesh);

}  // namespace tandem
