#include "common/ops/cpu/attention/pair_tiles.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "common/ops/cpu/instruction_sets.h"

namespace tandem::ops::detail {
namespace {

const std::uint16_t* halves(const Tensor& tensor) {
    return reinterpret_cast<const std::uint16_t*>(tensor.raw());
}

std::uint32_t* words(float* memory) {
    return reinterpret_cast<std::uint32_t*>(memory);
}

// The maxima as natural logarithms, like those of FloatTiles.
void leave_powers_of_two(QueryTile& tile, std::int64_t rows) {
    for (std::int64_t row = 0; row < rows; ++row) tile.max[row] *= std::numbers::ln2_v<float>;
}

}  // namespace

const ForwardPairs& forward_pairs() {
    return runs_amx() ? kForwardAmx : kForwardPairs;
}

bool multiplies_pairs(const Tensor& q) {
    return q.dtype() == DType::bfloat16 && q.dim(2) % 2 == 0 && forward_pairs().runs_here();
}

bool takes_pair_rows(const AttentionShape& shape) {
    return forward_pairs().rows_tile != nullptr && shape.group <= PairRowTiles::kQueries;
}

PairScale::PairScale(float scale)
    : powers(scale == 0.0f ? 1.0f : std::abs(scale) * std::numbers::log2e_v<float>),
      flip(std::signbit(scale) ? 0x80008000U : 0),
      zero(scale == 0.0f) {}

// --- many queries ---

std::int64_t PairTiles::scratch_floats() const {
    return std::max(kKeyTile * kLaneQueries + kKeyTile / 2 * kLaneQueries, kLaneQueries * shape_.width);
}

QueryTile PairTiles::place(float* tile, float* scratch) const {
    return {tile, tile + lane_pairs(shape_.head_dim) * kLaneQueries, scratch, {}, {}};
}

void PairTiles::load(QueryTile& tile, const Tensor& q, std::int64_t begin, std::int64_t rows,
                     std::int64_t head) const {
    load_rows(tile, halves(q) + (begin * shape_.heads + head) * shape_.head_dim,
              shape_.heads * shape_.head_dim, rows);
}

void PairTiles::load_heads(QueryTile& tile, const Tensor& q, std::int64_t row, std::int64_t first,
                           std::int64_t rows) const {
    load_rows(tile, halves(q) + (row * shape_.heads + first) * shape_.head_dim, shape_.head_dim, rows);
}

void PairTiles::load_rows(QueryTile& tile, const std::uint16_t* from, std::int64_t stride,
                          std::int64_t rows) const {
    forward_pairs().pack_lanes(from, stride, scale_.zero ? 0 : rows, shape_.head_dim, scale_.flip,
                               words(tile.q));
    start_tile(tile, shape_.head_dim * kLaneQueries);
}

void PairTiles::attend(QueryTile& tile, std::int64_t rows, const KeyTile& keys, const SeenKeys& seen) const {
    forward_pairs().lanes_tile({.q = words(tile.q),
                                .k = keys.k,
                                .v_t = keys.v_t,
                                .acc = tile.acc,
                                .max = tile.max,
                                .sum = tile.sum,
                                .scores = tile.scratch,
                                .p = words(tile.scratch + kKeyTile * kLaneQueries),
                                .queries = rows,
                                .head_dim = shape_.head_dim,
                                .visible = seen.visible,
                                .visible_step = seen.step,
                                .keys = seen.keys,
                                .scale = scale_.powers});
}

void PairTiles::finish(QueryTile& tile, std::int64_t rows) const {
    forward_pairs().unpack_lanes(tile.acc, rows, shape_.head_dim, shape_.width, tile.scratch);
    tile.acc = tile.scratch;
    leave_powers_of_two(tile, rows);
}

PairTiles::Segment::Segment(const PairTiles& tiles, const Tensor& k, const Tensor& v, std::int64_t begin,
                            std::int64_t count, std::int64_t kv_head)
    : shape_(tiles.shape_), count_(count) {
    const std::int64_t stride = shape_.kv_heads * shape_.head_dim;
    const std::int64_t offset = begin * stride + kv_head * shape_.head_dim;
    const std::int64_t padded = (count + kKeyTile - 1) / kKeyTile * kKeyTile;
    k_ = halves(k) + offset;
    v_t_ = words(segment_scratch().floats(padded / 2 * shape_.width));
    for (std::int64_t key = 0; key < count; key += kKeyTile) {
        const std::uint16_t* rows[kKeyTile];
        const std::int64_t keys = std::min(kKeyTile, count - key);
        for (std::int64_t j = 0; j < keys; ++j) rows[j] = halves(v) + offset + (key + j) * stride;
        forward_pairs().pack_values(rows, keys, shape_.head_dim, v_t_ + key / 2 * shape_.width);
    }
}

PairTiles::KeyTile PairTiles::Segment::tile(std::int64_t key) const {
    KeyTile result;
    const std::int64_t stride = shape_.kv_heads * shape_.head_dim;
    for (std::int64_t j = 0; j < kKeyTile; ++j) result.k[j] = k_ + std::min(key + j, count_ - 1) * stride;
    result.v_t = v_t_ + key / 2 * shape_.width;
    return result;
}

PairTiles::Page::Page(const PairTiles& tiles)
    : shape_(tiles.shape_), v_t_(words(page_scratch().floats(kKeyTile / 2 * shape_.width))) {}

PairTiles::KeyTile PairTiles::Page::load(const Tensor& k_cache, const Tensor& v_cache,
                                         const std::vector<std::int32_t>& pages, std::int64_t key,
                                         std::int64_t count, std::int64_t kv_head) {
    std::int64_t offsets[kKeyTile];
    find_page_rows(k_cache, v_cache, pages, key, count, kv_head, shape_, offsets);
    KeyTile result;
    const std::uint16_t* v[kKeyTile];
    for (std::int64_t j = 0; j < kKeyTile; ++j) {
        const std::int64_t offset = offsets[std::min(j, count - 1)];
        result.k[j] = halves(k_cache) + offset;
        v[j] = halves(v_cache) + offset;
    }
    forward_pairs().pack_values(v, count, shape_.head_dim, v_t_);
    result.v_t = v_t_;
    return result;
}

// --- few queries ---

std::int64_t PairRowTiles::tile_floats() const {
    return kQueries * ((shape_.head_dim / 2 + 15) / 16 * 16 + row_width(shape_.head_dim));
}

QueryTile PairRowTiles::place(float* tile, float* scratch) const {
    return {tile, tile + kQueries * ((shape_.head_dim / 2 + 15) / 16 * 16), scratch, {}, {}};
}

void PairRowTiles::load_heads(QueryTile& tile, const Tensor& q, std::int64_t row, std::int64_t first,
                              std::int64_t rows) const {
    const std::uint16_t* const from = halves(q) + (row * shape_.heads + first) * shape_.head_dim;
    auto* const to = reinterpret_cast<std::uint16_t*>(tile.q);
    const auto flip = static_cast<std::uint16_t>(scale_.flip);
    for (std::int64_t i = 0; i < rows * shape_.head_dim; ++i)
        to[i] = scale_.zero ? std::uint16_t{0} : static_cast<std::uint16_t>(from[i] ^ flip);
    start_tile(tile, rows * row_width(shape_.head_dim));
}

void PairRowTiles::attend(QueryTile& tile, std::int64_t rows, const KeyTile& keys,
                          const SeenKeys& seen) const {
    const std::uint16_t *k[kKeyVectors], *v[kKeyVectors];
    for (std::int64_t j = 0; j < kKeyVectors; ++j) {
        k[j] = reinterpret_cast<const std::uint16_t*>(keys.k[j]);
        v[j] = reinterpret_cast<const std::uint16_t*>(keys.v[j]);
    }
    forward_pairs().rows_tile({.q = words(tile.q),
                               .k = k,
                               .v = v,
                               .stride = keys.stride,
                               .acc = tile.acc,
                               .max = tile.max,
                               .sum = tile.sum,
                               .queries = rows,
                               .head_dim = shape_.head_dim,
                               .keys = seen.keys,
                               .scale = scale_.powers,
                               .next_k = keys.looks_ahead ? keys.next_k : nullptr,
                               .next_v = keys.looks_ahead ? keys.next_v : nullptr});
}

void PairRowTiles::finish(QueryTile& tile, std::int64_t rows) const {
    const std::int64_t width = row_width(shape_.head_dim);
    for (std::int64_t row = 0; row < rows; ++row)  // a row's end may lie where the next one begins
        forward_pairs().unpack_row(tile.acc + row * width, shape_.head_dim,
                                   tile.scratch + row * shape_.width);
    tile.acc = tile.scratch;
    leave_powers_of_two(tile, rows);
}

}  // namespace tandem::ops::detail
