// The keys that a row of queries sees, and the tiles of segments: see AttentionSegment.
#pragma once

#include <cstdint>

#include "common/ops/shared/host_device.h"

namespace tandem::ops::shared {

// Query i of a segment sees its keys [0, visible).
TANDEM_HOST_DEVICE std::int64_t visible_keys(std::int64_t i, std::int64_t q_len, std::int64_t k_len,
                                             bool causal) {
    const std::int64_t seen = causal ? i + k_len - q_len + 1 : k_len;
    return seen < 0 ? 0 : (seen < k_len ? seen : k_len);
}

// The first query of a segment that sees key `key`; q_len when none does.
TANDEM_HOST_DEVICE std::int64_t first_query(std::int64_t key, std::int64_t q_len, std::int64_t k_len,
                                            bool causal) {
    const std::int64_t first = causal ? key - (k_len - q_len) : 0;
    return first < 0 ? 0 : (first < q_len ? first : q_len);
}

// Where item `item` lies, when part p has the items [starts[p], starts[p + 1]); starts[0] = 0. Parts without
// items are stepped over.
TANDEM_HOST_DEVICE std::int64_t part_of(const std::int64_t* starts, std::int64_t parts, std::int64_t item) {
    std::int64_t low = 0;
    std::int64_t high = parts;  // starts[low] <= item < starts[high]
    while (high - low > 1) {
        const std::int64_t middle = (low + high) / 2;
        if (starts[middle] <= item) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return low;
}

}  // namespace tandem::ops::shared
