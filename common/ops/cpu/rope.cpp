// Rotary embedding on the CPU.
#include "common/ops/rope.h"

#include <algorithm>
#include <memory>
#include <vector>

#include "common/ops/cpu/parallel.h"
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
        const auto rotate_token = [&](std::int64_t token, float* scratch) {
            const std::int32_t position = at[static_cast<std::size_t>(token)];
            const float* row = rows->values.data() + position * dim;
            if (position >= rows->positions) {
                rows->fill(position, scratch + heads * dim);
                row = scratch + heads * dim;
            }
            const std::int64_t offset = token * heads * dim;
            float* values = detail::begin_row(x, offset, scratch);
            detail::read_row(x, offset, heads * dim, values);
            for (std::int64_t h = 0; h < heads; ++h)
                rotate_loop(values + h * dim, row, row + dim / 2, sign, dim / 2);
            detail::finish_row(x, offset, heads * dim, values);
        };
        const auto tokens = static_cast<std::int64_t>(at.size());
        detail::parallel_rows(tokens, heads * dim, [&](std::int64_t first, std::int64_t count) {
            const auto scratch =
                std::make_unique_for_overwrite<float[]>(static_cast<std::size_t>(dim * (heads + 1)));
            for (std::int64_t token = first; token < first + count; ++token)
                rotate_token(token, scratch.get());
        });
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
