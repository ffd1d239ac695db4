// Attention of one token a sequence over a paged cache, bound by reading the cache once. The keys of a
// sequence are cut into parts of a fixed length, so that few sequences still fill the GPU and a sequence's
// values do not depend on its neighbours; a second kernel merges the parts in order.
#include "common/ops/attention.h"
#include "common/ops/cuda/attention/decode_fp32.cuh"
#include "common/ops/cuda/attention/decode_mma.cuh"
#include "common/ops/cuda/attention/tile_fp32.cuh"
#include "common/ops/cuda/tensor_map.cuh"

namespace tandem::ops::TANDEM_KERNELS {
namespace {

// Tables on the device, as a recorded graph reads them.
struct DecodeTables {
    const std::int32_t* pages = nullptr;    // [batch, width]
    const std::int32_t* lengths = nullptr;  // [batch], none above max_length
    std::int64_t width = 0;
    std::int64_t max_length = 0;
};

void decode(Stream& stream, const Tensor& q, const Tensor& k_cache, const Tensor& v_cache,
            const DecodeTables& tables, float scale, Tensor out) {
    Work work(stream, "paged_attention_decode");
    const std::int64_t batch = q.dim(0), head_dim = q.dim(2);
    const std::int64_t kv_heads = k_cache.dim(2);
    const Cache cache{.k = elements(k_cache, head_dim),
                      .v = elements(v_cache, head_dim),
                      .tables = tables.pages,
                      .lengths = tables.lengths,
                      .table_width = tables.width,
                      .page_size = k_cache.dim(1),
                      .kv_heads = kv_heads,
                      .group = q.dim(1) / kv_heads,
                      .head_dim = head_dim,
                      .heads = q.dim(1),
                      .scale = scale,
                      .pages = shared::divider(k_cache.dim(1))};
    const std::int64_t rows = batch * cache.heads;
    if (rows == 0) return;
    const Elements queries = elements(q, head_dim);
    const bool by_tensor_cores = queries.vector && cache.k.vector && cache.v.vector && queries.is_bfloat16 &&
                                 cache.k.is_bfloat16 && cache.v.is_bfloat16 && head_dim <= 256 &&
                                 scale > 0.0f && k_cache.dim(0) * k_cache.dim(1) < kDividends;
    const std::int64_t count =
        std::max<std::int64_t>(1, ceil_div(tables.max_length, by_tensor_cores ? kPart : kPlainPart));
    const std::int64_t head_blocks = ceil_div(cache.group, by_tensor_cores ? kMmaHeads : kPlainHeads);
    const std::int64_t blocks = batch * kv_heads * head_blocks * count;
    float* const memory = work.scratch<float>(rows * count * (2 + head_dim));
    // The values first, at multiples of 16 bytes.
    float* const max = memory + rows * count * head_dim;
    const Parts parts{max, max + rows * count, memory, count};
    if (by_tensor_cores) {
        with_mma_head_dim(head_dim, [&]<int kDim>() {
            const auto launch = [&]<int kKeys>() {
                work.launch(part_mma_kernel<kDim, kKeys>, blocks, kDecodeThreads,
                            DecodeShape<kDim, kKeys>::kBytes, queries, cache, scale * kLog2E,
                            static_cast<std::uint32_t>(head_blocks), parts);
            };
            if (on_hopper(stream)) {
                launch.template operator()<kHopperCadence<kDim>>();
            } else {
                launch.template operator()<kCadence>();
            }
        });
    } else {
        with_head_dim("paged_attention_decode", head_dim, [&]<int kDim>() {
            work.launch(part_fp32_kernel<kDim>, blocks, kDecodeThreads, 0, queries, cache,
                        static_cast<std::uint32_t>(head_blocks), parts);
        });
    }
    work.launch(by_tensor_cores ? merge_mma_kernel : merge_fp32_kernel, rows, kDecodeThreads, 0, parts,
                cache.lengths, cache.heads, head_dim, elements(out, head_dim));
}

}  // namespace

void paged_attention_decode(Stream& stream, const Tensor& q, const Tensor& k_cache, const Tensor& v_cache,
                            const Tensor& pages, const Tensor& lengths, float scale, Tensor out) {
    decode(stream, q, k_cache, v_cache,
           {pages.data<std::int32_t>(), lengths.data<std::int32_t>(), pages.dim(1),
            pages.dim(1) * k_cache.dim(1)},
           scale, out);
}

void paged_attention_decode(Stream& stream, const Tensor& q, const Tensor& k_cache, const Tensor& v_cache,
                            const std::vector<std::vector<std::int32_t>>& block_tables,
                            const std::vector<std::int32_t>& lengths, float scale, Tensor out) {
    Work work(stream, "paged_attention_decode");
    DecodeTables tables;
    for (const auto& pages : block_tables)
        tables.width = std::max(tables.width, static_cast<std::int64_t>(pages.size()));
    std::vector<std::int32_t> flat(block_tables.size() * static_cast<std::size_t>(tables.width));
    for (std::size_t b = 0; b < block_tables.size(); ++b) {
        std::copy(block_tables[b].begin(), block_tables[b].end(),
                  flat.begin() + static_cast<std::ptrdiff_t>(b) * tables.width);
    }
    for (const std::int32_t length : lengths)
        tables.max_length = std::max<std::int64_t>(tables.max_length, length);
    tables.pages = work.upload(flat);
    tables.lengths = work.upload(lengths);
    decode(stream, q, k_cache, v_cache, tables, scale, out);
}

}  // namespace tandem::ops::TANDEM_KERNELS
