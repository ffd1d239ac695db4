// Attention of one token a sequence over a paged cache, on the CPU: a sequence meets the key tiles that
// attention_forward cuts, so its values are the same.
#include <algorithm>

#include "common/ops/attention.h"
#include "common/ops/cpu/attention/pack.h"
#include "common/ops/cpu/attention/tile.h"
#include "common/ops/cpu/parallel.h"

namespace tandem::ops::cpu {
namespace {

using detail::AttentionShape;
using detail::kKeyTile;
using detail::kQueryTile;
using detail::QueryTile;
using detail::Scratch;

std::vector<std::vector<std::int32_t>> tables_of(const Tensor& pages) {
    std::vector<std::vector<std::int32_t>> result;
    const auto all = pages.values<std::int32_t>();
    const auto width = static_cast<std::size_t>(pages.dim(1));
    for (std::size_t at = 0; at < all.size(); at += width)
        result.emplace_back(all.begin() + static_cast<std::ptrdiff_t>(at),
                            all.begin() + static_cast<std::ptrdiff_t>(at + width));
    result.resize(static_cast<std::size_t>(pages.dim(0)));
    return result;
}

}  // namespace

void paged_attention_decode(Stream& stream, const Tensor& q, const Tensor& k_cache, const Tensor& v_cache,
                            const std::vector<std::vector<std::int32_t>>& block_tables,
                            const std::vector<std::int32_t>& lengths, float scale, Tensor out) {
    const AttentionShape shape = detail::attention_shape(q, k_cache);
    stream.enqueue([=] {
        const AttentionShape& s = shape;
        const detail::AttentionKernels& kernels = detail::attention_kernels();
        detail::parallel_for(s.q_rows * s.kv_heads, [&](std::int64_t item) {
            const std::int64_t sequence = item / s.kv_heads;
            const std::int64_t kv_head = item % s.kv_heads;
            const std::int64_t length = lengths[static_cast<std::size_t>(sequence)];
            const auto& pages = block_tables[static_cast<std::size_t>(sequence)];
            thread_local Scratch scratch;
            detail::PackedPage page(s, scratch);
            QueryTile tile = detail::make_tile(s.width);
            // The heads of a group share their keys: they are the rows of one tile, or of several.
            for (std::int64_t first = 0; first < s.group; first += kQueryTile) {
                const std::int64_t rows = std::min(kQueryTile, s.group - first);
                const std::int64_t head = kv_head * s.group + first;
                for (std::int64_t row = 0; row < rows; ++row) {
                    detail::pack_rows(q, sequence, 1, head + row, s.heads, s, scale, tile.q + row * s.width);
                }
                detail::start_tile(tile, rows, s.width);
                for (std::int64_t key = 0; key < length; key += kKeyTile) {
                    const std::int64_t count = std::min(kKeyTile, length - key);
                    page.load(k_cache, v_cache, pages, key, count, kv_head);
                    kernels.forward_tile({.q = tile.q,
                                          .k_t = page.k_t(),
                                          .v = page.v(),
                                          .acc = tile.acc,
                                          .max = tile.max,
                                          .sum = tile.sum,
                                          .scores = tile.scores,
                                          .rows = rows,
                                          .head_dim = s.head_dim,
                                          .width = s.width,
                                          .visible = count,
                                          .visible_step = 0,
                                          .keys = count});
                }
                for (std::int64_t row = 0; row < rows; ++row) {
                    detail::finish_tile_row(tile, row, s.width, out,
                                            (sequence * s.heads + head + row) * s.head_dim, s.head_dim);
                }
            }
        });
    });
}

// The tables are read, and checked, when the stream gets there.
void paged_attention_decode(Stream& stream, const Tensor& q, const Tensor& k_cache, const Tensor& v_cache,
                            const Tensor& pages, const Tensor& lengths, float scale, Tensor out) {
    stream.enqueue([=] {
        Stream here = Stream::make_inline();
        ops::paged_attention_decode(here, q, k_cache, v_cache, tables_of(pages),
                                    lengths.to_vector<std::int32_t>(), scale, out);
    });
}

}  // namespace tandem::ops::cpu
