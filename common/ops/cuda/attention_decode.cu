// Attention of one token a sequence over a paged cache, bound by reading the cache once. The keys of a
// sequence are cut into parts of a fixed number, so that few sequences still fill the GPU and a sequence's
// values do not depend on its neighbours; a second kernel merges the parts in order.
#include <cmath>

#include "common/ops/cuda/attention_tile.cuh"
#include "common/ops/cuda/backend.cuh"
#include "common/ops/cuda/reduce.cuh"
#include "common/ops/shared/exp.h"

namespace tandem::ops::TANDEM_KERNELS {
namespace {

constexpr int kThreads = 128;
constexpr int kHeads = 4;   // query heads that share a walk over the keys
constexpr int kAtOnce = 2;  // keys whose loads are on their way together
constexpr std::int64_t kPart = 256;
constexpr float kLowest = -3.402823466e38f;

struct Cache {
    Elements k, v;
    const std::int32_t* tables;   // [batch, table_width]
    const std::int32_t* lengths;  // [batch]
    std::int64_t table_width, page_size, kv_heads, group, head_dim, heads;
    float scale;
};

// Tables on the device, as a recorded graph reads them.
struct DecodeTables {
    const std::int32_t* pages = nullptr;    // [batch, width]
    const std::int32_t* lengths = nullptr;  // [batch], none above max_length
    std::int64_t width = 0;
    std::int64_t max_length = 0;
};

// What a part found for a head: scratch [batch, heads, parts] of max, sum and the unscaled values.
struct Parts {
    float* max;
    float* sum;
    float* values;  // × head_dim
    std::int64_t count;
};

// kDim / 8 threads have a key together, eight dimensions each; several such teams walk side by side. Grid:
// (sequence, kv head, kHeads of its group, part).
template <int kDim>
__global__ void __launch_bounds__(kThreads)
    part_kernel(Elements q, Cache c, std::int64_t head_blocks, Parts parts) {
    constexpr int kTeam = kDim / 8;
    constexpr int kTeams = kThreads / kTeam;
    __shared__ float room_max[kHeads][kTeams];
    __shared__ float room_sum[kHeads][kTeams];
    __shared__ float room[kHeads][kTeams][kDim];
    std::int64_t item = blockIdx.x;
    const std::int64_t part = item % parts.count;
    item /= parts.count;
    const std::int64_t block = item % head_blocks;
    item /= head_blocks;
    const std::int64_t kv_head = item % c.kv_heads;
    const std::int64_t sequence = item / c.kv_heads;
    const std::int64_t length = c.lengths[sequence];
    const std::int64_t begin = part * kPart;
    if (begin >= length) return;
    const std::int64_t end = begin + kPart < length ? begin + kPart : length;
    const std::int64_t head = kv_head * c.group + block * kHeads;
    const int heads = static_cast<int>(c.group - block * kHeads < kHeads ? c.group - block * kHeads : kHeads);
    const int team = static_cast<int>(threadIdx.x) / kTeam;
    const int member = static_cast<int>(threadIdx.x) % kTeam;
    const std::int64_t d = member * kVector;
    const std::int64_t left = c.head_dim - d;  // dimensions from here on; none for the last members, perhaps

    float query[kHeads][8], acc[kHeads][8] = {}, max[kHeads], sum[kHeads];
#pragma unroll
    for (int h = 0; h < kHeads; ++h) {
        if (h < heads) {
            load8(q, (sequence * c.heads + head + h) * c.head_dim + d, left, query[h]);
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
    for (std::int64_t turn = begin; turn < end; turn += kTeams * kAtOnce) {
        std::int64_t rows[kAtOnce];
        float scores[kAtOnce][kHeads];
#pragma unroll
        for (int n = 0; n < kAtOnce; ++n) {
            const std::int64_t key = turn + n * kTeams + team;
            rows[n] = -1;
            if (key < end) {
                const std::int64_t page = c.tables[sequence * c.table_width + key / c.page_size];
                rows[n] = ((page * c.page_size + key % c.page_size) * c.kv_heads + kv_head) * c.head_dim + d;
            }
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
            room_max[h][team] = max[h];
            room_sum[h][team] = sum[h];
        }
#pragma unroll
        for (int i = 0; i < 8; ++i) room[h][team][d + i] = acc[h][i];
    }
    __syncthreads();
    // The teams, merged in order; a thread has a dimension of a head.
    for (int n = static_cast<int>(threadIdx.x); n < heads * kDim; n += kThreads) {
        const int h = n / kDim;
        const int at = n % kDim;
        if (at >= c.head_dim) continue;
        float most = kLowest;
        for (int t = 0; t < kTeams; ++t) most = room_max[h][t] > most ? room_max[h][t] : most;
        float value = 0.0f, total = 0.0f;
        for (int t = 0; t < kTeams; ++t) {
            const float weight = shared::fast_exp(room_max[h][t] - most);
            total += room_sum[h][t] * weight;
            value += room[h][t][at] * weight;
        }
        const std::int64_t to = (sequence * c.heads + head + h) * parts.count + part;
        parts.values[to * c.head_dim + at] = value;
        if (at == 0) {
            parts.max[to] = most;
            parts.sum[to] = total;
        }
    }
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
                      .scale = scale};
    const std::int64_t rows = batch * cache.heads;
    if (rows == 0) return;
    const std::int64_t count = std::max<std::int64_t>(1, ceil_div(tables.max_length, kPart));
    float* const memory = work.scratch<float>(rows * count * (2 + head_dim));
    const Parts parts{memory, memory + rows * count, memory + 2 * rows * count, count};
    const std::int64_t head_blocks = ceil_div(cache.group, kHeads);
    with_head_dim("paged_attention_decode", head_dim, [&]<int kDim>() {
        work.launch(part_kernel<kDim>, batch * kv_heads * head_blocks * count, kThreads, 0,
                    elements(q, head_dim), cache, head_blocks, parts);
    });
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
