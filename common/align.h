// Rounding up to a multiple.
#pragma once

#include <type_traits>

namespace tandem {

// The least multiple of `to` (> 0) that is not below `value` (>= 0).
template <typename Integer>
constexpr Integer round_up(Integer value, std::type_identity_t<Integer> to) {
    return (value + to - 1) / to * to;
}

}  // namespace tandem
