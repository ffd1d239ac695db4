// Rotary embedding on the CPU. The cosines and sines are computed once a table and position.
#include "common/ops/rope.h"

#include <algorithm>
#include <cmath>
#include <mutex>
#include <utility>

#include "common/ops/cpu/check.h"
#include "common/ops/cpu/rows.h"
#include "common/ops/cpu/simd.h"

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

struct RopeTable::State {
    std::mutex mutex;
    std::shared_ptr<const Rows> rows;
};

namespace {

// Positions past this are computed where they are used: a table would cost too much memory.
constexpr std::int64_t kMaxTableRows = 1 << 17;
constexpr std::int64_t kFirstRows = 256;

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
            const RopeTable& table, float sign) {
    detail::check_floating(op, "x", x);
    detail::check_ndim(op, "x", x, 3);
    require(x.dim(2) % 2 == 0 && x.dim(2) > 0, "{}: head_dim of x {} must be even", op, to_string(x.shape()));
    require(static_cast<std::int64_t>(positions.size()) == x.dim(0), "{}: {} positions for x {}", op,
            positions.size(), to_string(x.shape()));
    require(table.head_dim() == x.dim(2), "{}: a table of head_dim {} for x {}", op, table.head_dim(),
            to_string(x.shape()));
    std::int64_t last = 0;
    for (const std::int32_t position : positions) {
        require(position >= 0, "{}: negative position {}", op, position);
        last = std::max<std::int64_t>(last, position);
    }
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

RopeTable::RopeTable(std::vector<float> inverse_frequencies, float attention_factor)
    : state_(std::make_shared<State>()) {
    require(!inverse_frequencies.empty(), "a rope table needs frequencies");
    auto rows = std::make_shared<Rows>();
    rows->frequencies = std::move(inverse_frequencies);
    rows->factor = attention_factor;
    state_->rows = std::move(rows);
}

std::int64_t RopeTable::head_dim() const {
    if (!state_) return 0;
    const std::lock_guard lock(state_->mutex);
    return state_->rows->head_dim();
}

// Rows never change once handed out; more of them replace them.
std::shared_ptr<const RopeTable::Rows> RopeTable::rows(std::int64_t positions) const {
    const std::lock_guard lock(state_->mutex);
    const std::shared_ptr<const Rows>& now = state_->rows;
    const std::int64_t wanted = std::min(positions, kMaxTableRows);
    if (now->positions >= wanted) return now;
    auto grown = std::make_shared<Rows>();
    grown->frequencies = now->frequencies;
    grown->factor = now->factor;
    grown->positions = std::max(now->positions, kFirstRows);
    while (grown->positions < wanted) grown->positions *= 2;
    const std::int64_t dim = grown->head_dim();
    grown->values.resize(static_cast<std::size_t>(grown->positions * dim));
    for (std::int64_t p = 0; p < grown->positions; ++p) grown->fill(p, grown->values.data() + p * dim);
    return state_->rows = std::move(grown);
}

void rope(Stream& stream, Tensor x, std::span<const std::int32_t> positions, const RopeTable& table) {
    rotate("rope", stream, x, positions, table, 1.0f);
}

void rope_backward(Stream& stream, Tensor dx, std::span<const std::int32_t> positions,
                   const RopeTable& table) {
    rotate("rope_backward", stream, dx, positions, table, -1.0f);
}

}  // namespace tandem::ops
