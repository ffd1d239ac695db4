// What a rope table holds: for the ops of this folder only.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "common/ops/rope.h"

namespace tandem::ops {

struct RopeTable::Rows {
    std::vector<float> frequencies;
    float factor = 1.0f;
    std::vector<float> values;  // [positions, head_dim]: cosines, then sines
    std::int64_t positions = 0;

    std::int64_t head_dim() const { return 2 * static_cast<std::int64_t>(frequencies.size()); }
    void fill(std::int64_t position, float* row) const {
        const std::size_t half = frequencies.size();
        for (std::size_t i = 0; i < half; ++i) {
            const double angle = static_cast<double>(static_cast<float>(position) * frequencies[i]);
            row[i] = static_cast<float>(std::cos(angle)) * factor;
            row[half + i] = static_cast<float>(std::sin(angle)) * factor;
        }
    }
};

}  // namespace tandem::ops
