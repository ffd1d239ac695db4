// Leaf loops compiled once per instruction set and chosen when the program is loaded. Such a function must
// not call std templates or non-inlined functions, and must be free of locks: it runs where its caller runs.
#pragma once

#include <cstdint>

#include "common/ops/shared/exp.h"

// The resolvers of target_clones run before the sanitizers are set up.
#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define TANDEM_CLONES __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define TANDEM_CLONES
#endif
#define TANDEM_INLINE static inline __attribute__((always_inline))

namespace tandem::ops::detail {

// Lanes of the fixed summation order of every reduction over a row: it does not depend on the machine's
// vector width.
inline constexpr std::int64_t kLanes = 16;

using shared::fast_exp;

TANDEM_INLINE float sum_lanes(const float* lanes) {
    float pair[kLanes / 2];
    for (int i = 0; i < 8; ++i) pair[i] = lanes[i] + lanes[i + 8];
    for (int i = 0; i < 4; ++i) pair[i] += pair[i + 4];
    return (pair[0] + pair[2]) + (pair[1] + pair[3]);
}

}  // namespace tandem::ops::detail
