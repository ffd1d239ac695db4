// What tells an infinity or a NaN from a number: its bits without the sign, as a whole number, are not below those of
// infinity.
#pragma once

#include <cstdint>

#include "common/tensor/dtype.h"

namespace tandem::ops::shared {

// The bits of infinity, or of the only NaN where there is none; 0 for a dtype without either.
constexpr std::uint32_t infinity_of(DType dtype) {
    switch (dtype) {
        case DType::float32:
            return 0x7f800000u;
        case DType::bfloat16:
            return 0x7f80u;
        case DType::float16:
            return 0x7c00u;
        case DType::float8_e4m3fn:
            return 0x7fu;
        default:
            return 0;
    }
}

}  // namespace tandem::ops::shared
