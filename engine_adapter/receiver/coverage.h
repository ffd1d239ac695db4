// Whether a plan that a trainer announced can be carried out on an engine's tensors. Checked once, so that a
// bucket is copied without further questions. Pure; the plan is untrusted.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine_adapter/engine.h"

namespace tandem::engine {

// Throws ProtocolError naming bucket and tensor unless
//   the buckets follow each other and end with the last transfer;
//   every transfer lies in its region and in its tensor, aligned to its elements, of a dtype that is the
//   tensor's or casts to it;
//   every byte of every tensor is written exactly once;
//   cores, where there are any, has one for each rank that a transfer comes from.
void check_plan(const std::vector<TensorInfo>& tensors, std::span<const std::uint64_t> region_bytes,
                const TransferPlan& plan);

// "tensor 'x' bytes [0, 64) from rank 1", for messages. For rows with a stride: from the first byte to the
// last.
std::string describe(const TensorInfo& tensor, const Transfer& transfer);

}  // namespace tandem::engine
