// Attention of one token a sequence over a paged cache, bound by reading the cache once. The keys of a
// sequence are cut into parts of a fixed length, so that few sequences still fill the GPU and a sequence's
// values do not depend on its neighbours; a second kernel merges the parts in order.
#include <cmath>

#include "common/ops/attention.h"
#include "common/ops/cuda/attention/decode_mma.cuh"
#include "common/ops/cuda/attention/tile_fp32.cuh"
#include "common/ops/cuda/reduce.cuh"
#include "common/ops/shared/exp.h"

namespace tandem::ops::TANDEM_KERNELS {
namespace {

constexpr int kThreads = kDecodeThreads;
constexpr int kHeads = 4;   // query heads that share a walk over the keys
constexpr int kAtOnce = 2;  // keys that are looked at together

// Tables on the device, as a recorded graph reads them.
struct DecodeTables {
    const std::int32_t* pages = nullptr;    // [batch, width]
    const std::int32_t* lengths = nullptr;  // [batch], none above max_length
    std::int64_t width = 0;
    std::int64_t max_length = 0;
};

// kDim / 8 threads share a key, eight dimensions each; several such teams walk side by side. Grid: (sequence,
// kv head, kHeads of its group, part).
template <int kDim>
__global__ void __launch_bounds__(kThreads)
    part_kernel(Elements q, Cache c, std::uint32_t head_blocks, Parts parts) {
    constexpr int kTeam = kDim / 8;
    constexpr int kTeams = kThreads / kTeam;
    __shared__ Walkers<kHeads, kTeams, kDim> walkers;
    const DecodeItem item(c, static_cast<std::uint32_t>(parts.count), head_blocks, kHeads);
    if (item.begin >= item.end) return;
    const int heads = item.heads;
    const int team = static_cast<int>(threadIdx.x) / kTeam;
    const int member = static_cast<int>(threadIdx.x) % kTeam;
    const std::int64_t d = member * kVector;
    const std::int64_t left = c.head_dim - d;  // dimensions from here on; none for the last members, perhaps

    float query[kHeads][8], acc[kHeads][8] = {}, max[kHeads], sum[kHeads];
#pragma unroll
    for (int h = 0; h < kHeads; ++h) {
        if (h < heads) {
            load8(q, (item.sequence * c.heads + item.head + h) * c.head_dim + d, left, query[h]);
        } else {
#pragma unroll
            for (int i = 0; i < 8; ++i) query[h][i] = 0.0f;
        }
#pragma unroll
        for (int i = 0; i < 8; ++i) query[h][i] *= c.scale;
        max[h] = kLowest;
        sum[h] = 0.0f;
    }
    // All teams make the same number of turns: their lanes meet in the shuffles.
    for (int turn = item.begin; turn < item.end; turn += kTeams * kAtOnce) {
        std::int64_t rows[kAtOnce];
        float scores[kAtOnce][kHeads];
#pragma unroll
        for (int n = 0; n < kAtOnce; ++n) {
            const int key = turn + n * kTeams + team;
            rows[n] = -1;
            if (key < item.end) rows[n] = (item.row(c, key) * c.kv_heads + item.kv_head) * c.head_dim + d;
        }
#pragma unroll
        for (int n = 0; n < kAtOnce; ++n) {
            float k[8] = {};
            if (rows[n] >= 0) load8(c.k, rows[n], left, k);
#pragma unroll
            for (int h = 0; h < kHeads; ++h) {
                float dot = 0.0f;
#pragma unroll
                for (int i = 0; i < 8; ++i) dot += query[h][i] * k[i];
#pragma unroll
                for (int step = kTeam / 2; step > 0; step /= 2) dot += __shfl_xor_sync(kAllLanes, dot, step);
                scores[n][h] = dot;
            }
        }
#pragma unroll
        for (int h = 0; h < kHeads; ++h) {
            float most = max[h];
#pragma unroll
            for (int n = 0; n < kAtOnce; ++n) {
                if (rows[n] >= 0 && scores[n][h] > most) most = scores[n][h];
            }
            const float shrink = shared::fast_exp(max[h] - most);
            sum[h] *= shrink;
#pragma unroll
            for (int i = 0; i < 8; ++i) acc[h][i] *= shrink;
#pragma unroll
            for (int n = 0; n < kAtOnce; ++n) {
                scores[n][h] = rows[n] >= 0 ? shared::fast_exp(scores[n][h] - most) : 0.0f;
                sum[h] += scores[n][h];
            }
            max[h] = most;
        }
#pragma unroll
        for (int n = 0; n < kAtOnce; ++n) {
            float v[8] = {};
            if (rows[n] >= 0) load8(c.v, rows[n], left, v);
#pragma unroll
            for (int h = 0; h < kHeads; ++h) {
#pragma unroll
                for (int i = 0; i < 8; ++i) acc[h][i] += scores[n][h] * v[i];
            }
        }
    }
#pragma unroll
    for (int h = 0; h < kHeads; ++h) {
        if (member == 0) {
            walkers.max[h][team] = max[h];
            walkers.sum[h][team] = sum[h];
        }
#pragma unroll
        for (int i = 0; i < 8; ++i) walkers.values[h][team][d + i] = acc[h][i];
    }
    __syncthreads();
    walkers.merge(c, item, parts);
}

// Grid: (sequence, head).
__global__ void __launch_bounds__(kThreads)
    merge_kernel(Parts parts, const std::int32_t* lengths, std::int64_t heads, std::int64_t head_dim,
                 Elements out) {
    const std::int64_t row = blockIdx.x;
    const std::int64_t length = lengths[row / heads];
    const std::int64_t count = (length + kPart - 1) / kPart;
    float most = kLowest;
    for (std::int64_t p = 0; p < count; ++p) {
        const float max = parts.max[row * parts.count + p];
        most = max > most ? max : most;
    }
    for (std::int64_t d = threadIdx.x; d < head_dim; d += kThreads) {
        float value = 0.0f, total = 0.0f;
        for (std::int64_t p = 0; p < count; ++p) {
            const std::int64_t at = row * parts.count + p;
            const float weight = shared::fast_exp(parts.max[at] - most);
            total += parts.sum[at] * weight;
            value += parts.values[at * head_dim + d] * weight;
        }
        store1(out, row * head_dim + d, total == 0.0f ? 0.0f : value / total);
    }
}

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
    const std::int64_t count = std::max<std::int64_t>(1, ceil_div(tables.max_length, kPart));
    float* const memory = work.scratch<float>(rows * count * (2 + head_dim));
    const Parts parts{memory, memory + rows * count, memory + 2 * rows * count, count};
    const Elements queries = elements(q, head_dim);
    const bool by_tensor_cores = (head_dim == 64 || head_dim == 128) && queries.vector && cache.k.vector &&
                                 cache.v.vector && queries.is_bfloat16 && cache.k.is_bfloat16 &&
                                 cache.v.is_bfloat16 && k_cache.dim(0) * k_cache.dim(1) < kDividends;
    const std::int64_t head_blocks = ceil_div(cache.group, by_tensor_cores ? kMmaHeads : kHeads);
    const std::int64_t blocks = batch * kv_heads * head_blocks * count;
    if (by_tensor_cores) {
        work.launch(head_dim == 64 ? part_mma_kernel<64> : part_mma_kernel<128>, blocks, kThreads, 0, queries,
                    cache, static_cast<std::uint32_t>(head_blocks), parts);
    } else {
        with_head_dim("paged_attention_decode", head_dim, [&]<int kDim>() {
            work.launch(part_kernel<kDim>, blocks, kThreads, 0, queries, cache,
                        static_cast<std::uint32_t>(head_blocks), parts);
        });
    }
    work.launch(merge_kernel, rows, kThreads, 0, parts, cache.lengths, cache.heads, head_dim,
                elements(out, head_dim));
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
