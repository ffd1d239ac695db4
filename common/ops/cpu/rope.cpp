// Rotary embedding on the CPU.
#include "common/ops/rope.h"

#include <algorithm>
#include <memory>
#include <vector>

#include "common/ops/cpu/parallel.h"
#include "common/ops/cpu/rope_rows.h"
#include "common/ops/cpu/rows.h"
#include "common/ops/cpu/simd.h"
#include "common/ops/shared/rotation.h"

namespace tandem::ops {
namespace {

TANDEM_CLONES void rotate_loop(float* x, const float* cosines, const float* sines, float sign,
                               std::int64_t half) {
    for (std::int64_t i = 0; i < half; ++i) shared::rotate(x[i], x[half + i], cosines[i], sign * sines[i]);
}

}  // namespace

const float* detail::rope_row(const RopeTable::Rows& rows, std::int64_t position, float* scratch) {
    if (position < rows.positions) return rows.values.data() + position * rows.head_dim();
    rows.fill(position, scratch);
    return scratch;
}

void detail::rotate_heads(const Tensor& x, std::int64_t offset, std::int64_t heads, const float* row,
                          float sign, float* scratch) {
    const std::int64_t dim = x.dim(-1);
    float* values = begin_row(x, offset, scratch);
    read_row(x, offset, heads * dim, values);
    for (std::int64_t h = 0; h < heads; ++h) rotate_loop(values + h * dim, row, row + dim / 2, sign, dim / 2);
    finish_row(x, offset, heads * dim, values);
}

namespace cpu {
namespace {

void rotate(Stream& stream, const Tensor& x, std::span<const std::int32_t> positions, const RopeTable& table,
            float sign) {
    std::int64_t last = 0;
    for (const std::int32_t position : positions) last = std::max<std::int64_t>(last, position);
    stream.enqueue([=, at = std::vector<std::int32_t>(positions.begin(), positions.end())] {
        const std::int64_t heads = x.dim(1);
        const std::int64_t dim = x.dim(2);
        const auto rows = table.rows(last + 1);
        const auto rotate_token = [&](std::int64_t token, float* scratch) {
            const float* row =
                detail::rope_row(*rows, at[static_cast<std::size_t>(token)], scratch + heads * dim);
            detail::rotate_heads(x, token * heads * dim, heads, row, sign, scratch);
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

}  // namespace cpu
}  // namespace tandem::ops
