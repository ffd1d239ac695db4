// One collective call, as ranks compare it: the same on all of them, or an error that describes both sides.
#pragma once

#include <cstdint>
#include <string>

#include "common/comm/communicator.h"

namespace tandem::comm {

enum class Kind : std::uint32_t { barrier, all_gather, reduce_scatter, all_reduce, broadcast, all_to_all };

struct Call {
    Kind kind = Kind::barrier;
    ReduceOp op = ReduceOp::sum;
    DType dtype = DType::uint8;
    std::int32_t root = -1;  // group index
    std::uint32_t items = 0;
    friend bool operator==(const Call&, const Call&) = default;
};

const char* kind_name(Kind kind);
// "reduce_scatter avg of bfloat16, 3 items, 4096 bytes"
std::string describe(const Call& call, std::uint64_t bytes);

}  // namespace tandem::comm
