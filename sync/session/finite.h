// Whether the weights have infinities or NaN, before they are pushed.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "common/comm/communicator.h"
#include "sync/weight_source.h"

namespace tandem::sync {

struct NonFiniteTensor {
    std::string name;
    std::int64_t elements = 0;
    std::int64_t first_row = 0;  // of dim 0 of the whole tensor
};

// In the source's order: of what this rank holds of each tensor. Reads all of it once; on the CPU on as many threads as
// help. Once `stop` says so it looks no further, and returns what it has found.
std::vector<NonFiniteTensor> find_non_finite(const WeightSource& source,
                                             const std::function<bool()>& stop = {});
// The same of all ranks: the text of the first rank that has any; empty: none has. Collective.
std::string non_finite_text(const WeightSource& source, comm::Communicator& world);

// "lm_head.weight has 2 elements that are infinite or NaN, the first in row 84; so have 3 other tensors"
std::string text_of(const std::vector<NonFiniteTensor>& tensors);
nlohmann::json json_of(const std::vector<NonFiniteTensor>& tensors);

}  // namespace tandem::sync
