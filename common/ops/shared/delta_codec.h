// The smallest encoding of a delta, and the cost of a gap: see common/ops/delta.h.
#pragma once

#include <cstdint>

#include "common/ops/delta.h"
#include "common/ops/shared/host_device.h"

namespace tandem::ops::shared {

TANDEM_HOST_DEVICE std::uint64_t gap_bytes(std::uint64_t gap) {
    return gap / 255 + 1;
}

// Gaps if they are smaller than the bitmap, else the bitmap if it is smaller than all elements.
inline DeltaCodec smallest_codec(std::uint64_t elements, std::uint64_t width, std::uint64_t changed,
                                 std::uint64_t all_gap_bytes) {
    const std::uint64_t bitmap = (elements + 7) / 8;
    if (changed == 0) return DeltaCodec::none;
    if (sizeof(std::uint32_t) + all_gap_bytes < bitmap) return DeltaCodec::gaps;
    return bitmap + changed * width < elements * width ? DeltaCodec::bitmap : DeltaCodec::dense;
}

}  // namespace tandem::ops::shared
