// One pair of rotary embedding, and its angle where no table holds it.
#pragma once

#include <cmath>
#include <cstdint>

#include "common/ops/shared/host_device.h"

namespace tandem::ops::shared {

// The product is fp32, as the models' own code has it; its cosine and sine are taken in fp64.
TANDEM_HOST_DEVICE double rope_angle(std::int64_t position, float inverse_frequency) {
    return static_cast<double>(static_cast<float>(position) * inverse_frequency);
}

// (a, b) turned by the angle of (cosine, sine).
TANDEM_HOST_DEVICE void rotate(float& a, float& b, float cosine, float sine) {
    const float x = a;
    a = x * cosine - b * sine;
    b = b * cosine + x * sine;
}

}  // namespace tandem::ops::shared
