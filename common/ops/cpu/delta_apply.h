// The two halves of delta_apply on the CPU. Its caller may lend an encoding that lies in a peer's memory, so
// the second half does not rely on what the first has seen.
#pragma once

#include "common/ops/delta.h"

namespace tandem::ops::detail {

// Where the parts of an encoding by gaps or bitmap lie: the marks say which elements change, the values are
// new.
struct DeltaParts {
    ConstSpan marks;
    ConstSpan values;
};

// Throws ProtocolError unless the encoding fits `elements` elements of `width` bytes.
DeltaParts check_delta(DeltaCodec codec, ConstSpan encoded, std::size_t width, std::size_t elements);

struct DeltaTarget {
    std::byte* to = nullptr;
    std::size_t width = 0;  // bytes of an element, 2 or 4
    std::size_t rows = 0;
    std::size_t row_elements = 0;
    std::size_t stride = 0;  // bytes from row to row
};

// Writes the values to the elements that the marks name. Whatever the marks say by now: it reads the parts
// only, writes elements of the target only, and throws ProtocolError when they name an element or a value
// that is not there.
void write_delta(DeltaCodec codec, const DeltaParts& parts, const DeltaTarget& target);

}  // namespace tandem::ops::detail
