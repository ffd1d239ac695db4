// Rows of a table. The gradient of a row is the sum over its tokens in their order: tokens are sorted by row
// on the host, and one thread sums eight columns of one row.
#include <algorithm>
#include <vector>

#include "common/ops/cuda/elements.cuh"
#include "common/ops/cuda/work.cuh"
#include "common/ops/embedding.h"
#include "common/ops/shared/divider.h"

namespace tandem::ops::TANDEM_KERNELS {
namespace {

// Items: (token, 16 bytes of its row), of rows that are copied as they are.
__global__ void __launch_bounds__(kThreads)
    gather_rows_kernel(const std::byte* table, const std::int32_t* ids, std::uint32_t items,
                       shared::Divider pieces, std::byte* y) {
    for (std::uint32_t item = blockIdx.x * kThreads + threadIdx.x; item < items;
         item += gridDim.x * kThreads) {
        const std::uint32_t token = pieces.quotient(item);
        const std::int64_t row = ids[token];
        Words words{};
        if (row >= 0) words = load16(table + (row * pieces.divisor + pieces.rest(item, token)) * 16);
        store16(y + std::int64_t{item} * 16, words);
    }
}

// Items: (token, vector of the row).
__global__ void __launch_bounds__(kThreads) gather_kernel(Elements table, const std::int32_t* ids,
                                                          std::int64_t tokens, std::int64_t dim, Elements y) {
    const std::int64_t vectors = (dim + kVector - 1) / kVector;
    const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
    std::int64_t item = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    for (; item < tokens * vectors; item += step) {
        const std::int64_t token = item / vectors;
        const std::int64_t at = item % vectors * kVector;
        const std::int64_t row = ids[token];
        float v[8] = {};
        if (row >= 0) load8(table, row * dim + at, dim - at, v);
        store8(y, token * dim + at, dim - at, v);
    }
}

// starts[s] … starts[s + 1]: the tokens of the s-th row that has any, in `order`.
__global__ void __launch_bounds__(kThreads)
    scatter_kernel(Elements dy, const std::int32_t* ids, const std::int32_t* order,
                   const std::int32_t* starts, std::int64_t segments, std::int64_t dim, Elements dtable) {
    const std::int64_t vectors = (dim + kVector - 1) / kVector;
    const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
    std::int64_t item = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    for (; item < segments * vectors; item += step) {
        const std::int64_t segment = item / vectors;
        const std::int64_t at = item % vectors * kVector;
        const std::int64_t row = ids[order[starts[segment]]] * dim + at;
        float sum[8];
        load8(dtable, row, dim - at, sum);
        for (std::int32_t i = starts[segment]; i < starts[segment + 1]; ++i) {
            float v[8];
            load8(dy, order[i] * dim + at, dim - at, v);
#pragma unroll
            for (int k = 0; k < 8; ++k) sum[k] += v[k];
        }
        store8(dtable, row, dim - at, sum);
    }
}

void gather(Work& work, const Tensor& table, const std::int32_t* ids, std::int64_t tokens, const Tensor& y) {
    const std::int64_t dim = table.dim(1);
    const Elements from = elements(table, dim), to = elements(y, dim);
    const std::int64_t pieces = dim * (from.is_bfloat16 ? 2 : 4) / 16;
    if (from.vector && to.vector && from.is_bfloat16 == to.is_bfloat16 && tokens * pieces < kDividends) {
        work.launch(gather_rows_kernel, std::min(ceil_div(tokens * pieces, kThreads), kGridBlocks), kThreads,
                    0, from.data, ids, static_cast<std::uint32_t>(tokens * pieces), shared::divider(pieces),
                    to.data);
        return;
    }
    work.launch(gather_kernel, std::min(ceil_div(tokens * ceil_div(dim, kVector), kThreads), kGridBlocks),
                kThreads, 0, from, ids, tokens, dim, to);
}

}  // namespace

void embedding(Stream& stream, const Tensor& table, std::span<const std::int32_t> ids, Tensor y) {
    Work work(stream, "embedding");
    gather(work, table, work.upload(ids), static_cast<std::int64_t>(ids.size()), y);
}

void embedding(Stream& stream, const Tensor& table, const Tensor& ids, Tensor y) {
    Work work(stream, "embedding");
    gather(work, table, ids.data<std::int32_t>(), ids.numel(), y);
}

void embedding_backward(Stream& stream, const Tensor& dy, std::span<const std::int32_t> ids, Tensor dtable) {
    Work work(stream, "embedding_backward");
    const std::int64_t dim = dtable.dim(1);
    std::vector<std::int32_t> order;
    for (std::size_t i = 0; i < ids.size(); ++i)
        if (ids[i] >= 0) order.push_back(static_cast<std::int32_t>(i));
    std::stable_sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) {
        return ids[static_cast<std::size_t>(a)] < ids[static_cast<std::size_t>(b)];
    });
    std::vector<std::int32_t> starts;
    for (std::size_t i = 0; i < order.size(); ++i) {
        const auto id = [&](std::size_t at) { return ids[static_cast<std::size_t>(order[at])]; };
        if (i == 0 || id(i) != id(i - 1)) starts.push_back(static_cast<std::int32_t>(i));
    }
    const auto segments = static_cast<std::int64_t>(starts.size());
    starts.push_back(static_cast<std::int32_t>(order.size()));
    const std::int32_t* const rows = work.upload(ids);
    const std::int32_t* const sorted = work.upload(order);
    const std::int32_t* const bounds = work.upload(starts);
    work.launch(scatter_kernel, std::min(ceil_div(segments * ceil_div(dim, kVector), kThreads), kGridBlocks),
                kThreads, 0, elements(dy, dim), rows, sorted, bounds, segments, dim, elements(dtable, dim));
}

}  // namespace tandem::ops::TANDEM_KERNELS
