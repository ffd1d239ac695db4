// Rotary embedding on the CPU.
#include "common/ops/rope.h"

#include <algorithm>
#include <vector>

#include "common/ops/cpu/rows.h"
#include "common/ops/cpu/simd.h"
#include "common/ops/rope_table.h"
#include "common/ops/shared/rotation.h"

namespace tandem::ops::cpu {

namespace {

// Rotates one head; `sign` -1 turns back.
TANDEM_CLONES void rotate_loop(float* x, const float* cosines, const float* sines, float sign,
                               std::int64_t half) {
    for (std::int64_t i = 0; i < half; ++i) shared::rotate(x[i], x[half + i], cosines[i], sign * sines[i]);
}

void rotate(Stream& stream, const Tensor& x, std::span<const std::int32_t> positions, const RopeTable& table,
            float sign) {
    std::int64_t last = 0;
    for (const std::int32_t position : positions) last = std::max<std::int64_t>(last, position);
    stream.enqueue([=, at = std::vector<std::int32_t>(positions.begin(), positions.end())] {
        const std::int64_t heads = x.dim(1);
        const std::int64_t dim = x.dim(2);
        const auto rows = table.rows(last + 1);
        std::vector<float> scratch(static_cast<std::size_t>(dim * (heads + 1)));
        for (std::size_t token = 0; token < at.size(); ++token) {
            const float* row = rows->values.data() + at[token] * dim;
            if (at[token] >= rows->positions) {
                rows->fill(at[token], scratch.data() + heads * dim);
                row = scratch.data() + heads * dim;
            }
            const std::int64_t offset = static_cast<std::int64_t>(token) * heads * dim;
            float* values = detail::begin_row(x, offset, scratch.data());
            detail::read_row(x, offset, heads * dim, values);
            for (std::int64_t h = 0; h < heads; ++h)
                rotate_loop(values + h * dim, row, row + dim / 2, sign, dim / 2);
            detail::finish_row(x, offset, heads * dim, values);
        }
    });
}

}  // namespace

void rope(Stream& stream, Tensor x, std::span<const std::int32_t> positions, const RopeTable& table) {
    rotate(stream, x, positions, table, 1.0f);
}

void rope(Stream& stream, Tensor x, const Tensor& positions, std::int64_t limit, const RopeTable& table) {
    stream.enqueue([=] {
        for (const std::int32_t position : positions.values<std::int32_t>())
            require(position < limit, "rope: position {} is not below {}", position, limit);
        Stream here = Stream::make_inline();
        ops::rope(here, x, positions.values<std::int32_t>(), table);
    });
}

void rope_backward(Stream& stream, Tensor dx, std::span<const std::int32_t> positions,
                   const RopeTable& table) {
    rotate(stream, dx, positions, table, -1.0f);
}

}  // namespace tandem::ops::cpu
