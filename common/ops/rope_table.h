// The contents of a rope table, for the ops of this folder only.
#pragma once

#include <cmath>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "common/ops/rope.h"
#include "common/ops/shared/rotation.h"

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
            const double angle = shared::rope_angle(position, frequencies[i]);
            row[i] = static_cast<float>(std::cos(angle)) * factor;
            row[half + i] = static_cast<float>(std::sin(angle)) * factor;
        }
    }

    // The copy that a backend keeps on a device, made when it is first asked for.
    std::shared_ptr<void> on_device(int device, const std::function<std::shared_ptr<void>()>& make) const {
        const std::lock_guard lock(mutex_);
        std::shared_ptr<void>& copy = copies_[device];
        if (!copy) copy = make();
        return copy;
    }

  private:
    mutable std::mutex mutex_;
    mutable std::map<int, std::shared_ptr<void>> copies_;
};

}  // namespace tandem::ops
