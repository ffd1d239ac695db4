// Rotary embedding on the CPU. The cosines and sines are computed once per (theta, head_dim) and position.
#include "common/ops/rope.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "common/ops/cpu/check.h"
#include "common/ops/cpu/rows.h"
#include "common/ops/cpu/simd.h"

namespace tandem::ops {
namespace {

// Positions past this are computed where they are used: a table would cost too much memory.
constexpr std::int64_t kMaxTableRows = 1 << 17;

std::vector<float> inverse_frequencies(float theta, std::int64_t head_dim) {
    std::vector<float> result(static_cast<std::size_t>(head_dim / 2));
    for (std::size_t i = 0; i < result.size(); ++i) {
        const double exponent = -2.0 * static_cast<double>(i) / static_cast<double>(head_dim);
        result[i] = static_cast<float>(std::pow(static_cast<double>(theta), exponent));
    }
    return result;
}

// cosines then sines of one position
void fill_row(const std::vector<float>& frequencies, std::int64_t position, float* row) {
    const std::size_t half = frequencies.size();
    for (std::size_t i = 0; i < half; ++i) {
        const double angle = static_cast<double>(static_cast<float>(position) * frequencies[i]);
        row[i] = static_cast<float>(std::cos(angle));
        row[half + i] = static_cast<float>(std::sin(angle));
    }
}

struct Table {
    std::vector<float> frequencies;
    std::vector<float> rows;  // [positions, head_dim]
    std::int64_t positions = 0;
};

// Thread-safe. A table never changes once handed out; a longer one replaces it.
std::shared_ptr<const Table> table_for(float theta, std::int64_t head_dim, std::int64_t positions) {
    static std::mutex mutex;
    static std::map<std::pair<float, std::int64_t>, std::shared_ptr<const Table>> tables;
    const std::lock_guard lock(mutex);
    std::shared_ptr<const Table>& entry = tables[{theta, head_dim}];
    const std::int64_t wanted = std::min(positions, kMaxTableRows);
    if (entry && entry->positions >= wanted) return entry;
    auto grown = std::make_shared<Table>();
    grown->frequencies = inverse_frequencies(theta, head_dim);
    grown->positions = std::max<std::int64_t>(entry ? entry->positions : 256, 1);
    while (grown->positions < wanted) grown->positions *= 2;
    grown->rows.resize(static_cast<std::size_t>(grown->positions * head_dim));
    for (std::int64_t p = 0; p < grown->positions; ++p) {
        fill_row(grown->frequencies, p, grown->rows.data() + p * head_dim);
    }
    return entry = std::move(grown);
}

// Rotates one head; `sign` -1 turns back.
TANDEM_CLONES void rotate_loop(float* x, const float* cosines, const float* sines, float sign,
                               std::int64_t half) {
    for (std::int64_t i = 0; i < half; ++i) {
        const float a = x[i];
        const float b = x[half + i];
        const float s = sign * sines[i];
        x[i] = a * cosines[i] - b * s;
        x[half + i] = b * cosines[i] + a * s;
    }
}

void rotate(const char* op, Stream& stream, const Tensor& x, std::span<const std::int32_t> positions,
            float theta, float sign) {
    detail::check_floating(op, "x", x);
    detail::check_ndim(op, "x", x, 3);
    require(x.dim(2) % 2 == 0 && x.dim(2) > 0, "{}: head_dim of x {} must be even", op, to_string(x.shape()));
    require(static_cast<std::int64_t>(positions.size()) == x.dim(0), "{}: {} positions for x {}", op,
            positions.size(), to_string(x.shape()));
    require(theta > 0.0f, "{}: theta {} must be positive", op, theta);
    std::int64_t last = 0;
    for (const std::int32_t position : positions) {
        require(position >= 0, "{}: negative position {}", op, position);
        last = std::max<std::int64_t>(last, position);
    }
    stream.enqueue([=, at = std::vector<std::int32_t>(positions.begin(), positions.end())] {
        const std::int64_t heads = x.dim(1);
        const std::int64_t dim = x.dim(2);
        const auto table = table_for(theta, dim, last + 1);
        std::vector<float> scratch(static_cast<std::size_t>(dim * (heads + 1)));
        for (std::size_t token = 0; token < at.size(); ++token) {
            const float* row = table->rows.data() + at[token] * dim;
            if (at[token] >= table->positions) {
                fill_row(table->frequencies, at[token], scratch.data() + heads * dim);
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

void rope(Stream& stream, Tensor x, std::span<const std::int32_t> positions, float theta) {
    rotate("rope", stream, x, positions, theta, 1.0f);
}

void rope_backward(Stream& stream, Tensor dx, std::span<const std::int32_t> positions, float theta) {
    rotate("rope_backward", stream, dx, positions, theta, -1.0f);
}

}  // namespace tandem::ops
