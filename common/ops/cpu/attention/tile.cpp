#include "common/ops/cpu/attention/tile.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "common/ops/cpu/rows.h"

namespace tandem::ops::detail {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

}  // namespace

void start_tile(QueryTile& tile, std::int64_t acc_floats) {
    std::fill_n(tile.acc, acc_floats, 0.0f);
    std::fill_n(tile.max, kMostQueries, -kInfinity);
    std::fill_n(tile.sum, kMostQueries, 0.0f);
}

QueryTile FloatTiles::place(float* tile, float* scratch) const {
    return {tile, tile + kQueryTile * shape_.width, scratch, {}, {}};
}

void FloatTiles::load(QueryTile& tile, const Tensor& q, std::int64_t begin, std::int64_t rows,
                      std::int64_t head) const {
    pack_rows(q, begin, rows, head, shape_.heads, shape_, scale_, tile.q);
    start_tile(tile, rows * shape_.width);
}

void FloatTiles::load_heads(QueryTile& tile, const Tensor& q, std::int64_t row, std::int64_t first,
                            std::int64_t rows) const {
    for (std::int64_t i = 0; i < rows; ++i)
        pack_rows(q, row, 1, first + i, shape_.heads, shape_, scale_, tile.q + i * shape_.width);
    start_tile(tile, rows * shape_.width);
}

ForwardTile FloatTiles::forward_tile(QueryTile& tile, std::int64_t rows, const SeenKeys& seen) const {
    return {.q = tile.q,
            .k_t = nullptr,
            .v = nullptr,
            .acc = tile.acc,
            .max = tile.max,
            .sum = tile.sum,
            .scores = tile.scratch,
            .rows = rows,
            .head_dim = shape_.head_dim,
            .width = shape_.width,
            .visible = seen.visible,
            .visible_step = seen.step,
            .keys = seen.keys};
}

void FloatTiles::attend(QueryTile& tile, std::int64_t rows, const KeyTile& keys, const SeenKeys& seen) const {
    ForwardTile all = forward_tile(tile, rows, seen);
    all.k_t = keys.k_t;
    all.v = keys.v;
    attention_kernels().forward_tile(all);
}

void FloatRowTiles::attend(QueryTile& tile, std::int64_t rows, const KeyTile& keys,
                           const SeenKeys& seen) const {
    attention_kernels().rows_tile(forward_tile(tile, rows, seen), keys,
                                  tile.scratch + FloatTiles::scratch_floats());
}

FloatTiles::Segment::Segment(const FloatTiles& tiles, const Tensor& k, const Tensor& v, std::int64_t begin,
                             std::int64_t count, std::int64_t kv_head)
    : keys_(k, v, begin, count, kv_head, tiles.shape_, segment_scratch()) {}

FloatTiles::Page::Page(const FloatTiles& tiles) : page_(tiles.shape_, page_scratch()) {}

FloatTiles::KeyTile FloatTiles::Page::load(const Tensor& k_cache, const Tensor& v_cache,
                                           const std::vector<std::int32_t>& pages, std::int64_t key,
                                           std::int64_t count, std::int64_t kv_head) {
    page_.load(k_cache, v_cache, pages, key, count, kv_head);
    return {page_.k_t(), page_.v()};
}

float finish_tile_row(const QueryTile& tile, std::int64_t row, std::int64_t width, const Tensor& out,
                      std::int64_t offset, std::int64_t head_dim) {
    const float sum = tile.sum[row];
    float* acc = tile.acc + row * width;
    const float factor = sum > 0.0f ? 1.0f / sum : (sum == 0.0f ? 0.0f : sum);  // NaN stays NaN
    for (std::int64_t d = 0; d < head_dim; ++d) acc[d] *= factor;
    if (out.dtype() == DType::float32) {
        std::copy_n(acc, head_dim, out.data<float>() + offset);
    } else {
        narrow(acc, out.data<bfloat16>() + offset, head_dim);
    }
    return sum == 0.0f ? -kInfinity : tile.max[row] + std::log(sum);
}

void merge_tile_row(const QueryTile& tile, std::int64_t row, std::int64_t width, float* out,
                    std::int64_t head_dim, float& lse) {
    const float sum = tile.sum[row];
    if (sum == 0.0f) return;
    const float added_lse = tile.max[row] + std::log(sum);
    const float most = std::max(added_lse, lse);
    const float before = std::exp(lse - most), added = std::exp(added_lse - most);
    const float both = before + added;
    const float* acc = tile.acc + row * width;
    for (std::int64_t d = 0; d < head_dim; ++d) out[d] = (out[d] * before + acc[d] * (added / sum)) / both;
    lse = most + std::log(both);
}

}  // namespace tandem::ops::detail
