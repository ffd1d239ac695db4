// Which elements of sharded tensors are infinite or NaN, by tensor and row.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "common/comm/communicator.h"
#include "common/dtensor/dtensor.h"

namespace tandem::trainer {

struct NonFiniteTensor {
    std::string name;
    std::int64_t elements = 0;
    std::int64_t rows = 0;                 // that have any
    std::vector<std::int64_t> first_rows;  // of dim 0, ascending, the first few
};

// In the tensors' order; the same on every rank. Each rank of `world` holds one block of each of `tensors` (block.h:
// held_block; throws as that does); ranks with the same block are replicas, of which the worst counts. Reads each local
// element once, in the stream's order, and those of a tensor that has any once more. Blocking, collective.
std::vector<NonFiniteTensor> find_non_finite(const std::vector<std::pair<std::string, DTensor>>& tensors,
                                             Stream& stream, comm::Communicator& world);

// "lm_head.weight (12 elements in rows 3, 84, 90 and 2 more), … and 20 more tensors"; the first few.
std::string text_of(const std::vector<NonFiniteTensor>& tensors);

}  // namespace tandem::trainer
