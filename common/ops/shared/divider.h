// Division by a number that is known before a kernel starts, in three instructions instead of some twenty (or
// a hundred for 64 bits): Granlund & Montgomery, "Division by invariant integers using multiplication", 1994.
#pragma once

#include <cstdint>

#include "common/ops/shared/host_device.h"

namespace tandem::ops::shared {

// For dividends below 2^31.
struct Divider {
    std::uint32_t divisor = 1, multiplier = 1, shift = 0;

    TANDEM_MEMBER std::uint32_t quotient(std::uint32_t dividend) const {
#if defined(__CUDA_ARCH__)
        const std::uint32_t high = __umulhi(dividend, multiplier);
#else
        const auto high = static_cast<std::uint32_t>((std::uint64_t{dividend} * multiplier) >> 32);
#endif
        return (high + dividend) >> shift;
    }
    TANDEM_MEMBER std::uint32_t rest(std::uint32_t dividend, std::uint32_t quotient) const {
        return dividend - quotient * divisor;
    }
};

// 0 <= divisor < 2^31; 0, where there is nothing to divide, counts as 1.
inline Divider divider(std::int64_t divisor) {
    Divider result;
    result.divisor = static_cast<std::uint32_t>(divisor > 0 ? divisor : 1);
    while ((std::uint64_t{1} << result.shift) < result.divisor) ++result.shift;
    const std::uint64_t above = (std::uint64_t{1} << result.shift) - result.divisor;
    result.multiplier = static_cast<std::uint32_t>((above << 32) / result.divisor + 1);
    return result;
}

}  // namespace tandem::ops::shared
