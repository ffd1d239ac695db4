// Copies runs of indices along one dim between a tensor and a packed block. On the host, at once.
#pragma once

#include <cstddef>
#include <vector>

#include "common/dtensor/placement.h"
#include "common/tensor/shape.h"

namespace tandem {

// `from` has `shape`; `to` receives the same shape with `dim` cut to the runs, packed. Returns the bytes
// written.
std::size_t take_runs(const std::byte* from, const Shape& shape, int dim, const std::vector<Run>& runs,
                      std::size_t element_bytes, std::byte* to);
// The reverse: `to` has `shape`, and its runs receive the packed block. Returns the bytes read.
std::size_t put_runs(const std::byte* from, const Shape& shape, int dim, const std::vector<Run>& runs,
                     std::size_t element_bytes, std::byte* to);

}  // namespace tandem
