// Rotary embedding. The table lies on the device, kept by the rows of the host's table, which grow with the
// positions met; past the largest table cosines and sines are computed where they are used.
#include "common/ops/cuda/elements.cuh"
#include "common/ops/cuda/rope_rows.cuh"
#include "common/ops/cuda/work.cuh"
#include "common/ops/rope.h"
#include "common/ops/shared/divider.h"
#include "common/ops/shared/rotation.h"

namespace tandem::ops::TANDEM_KERNELS {
namespace {

__device__ void angles(const RopeRows& table, std::int64_t position, std::int64_t i, std::int64_t count,
                       float (&cosines)[8], float (&sines)[8]) {
    if (position < table.positions) {
        const std::int64_t row = position * 2 * table.half;
        load8(table.values, row + i, count, cosines);
        load8(table.values, row + table.half + i, count, sines);
        return;
    }
#pragma unroll
    for (int k = 0; k < 8; ++k) {
        if (k >= count) break;
        const double angle = shared::rope_angle(position, table.frequencies[i + k]);
        cosines[k] = static_cast<float>(cos(angle)) * table.factor;
        sines[k] = static_cast<float>(sin(angle)) * table.factor;
    }
}

// Items: (token, head, eight pairs), for rows of whole accesses.
template <bool kBfloat16>
__global__ void __launch_bounds__(kThreads)
    rotate_rows_kernel(Elements x, const std::int32_t* positions, RopeRows table, std::uint32_t items,
                       shared::Divider vectors, shared::Divider heads, float sign) {
    for (std::uint32_t item = blockIdx.x * kThreads + threadIdx.x; item < items;
         item += gridDim.x * kThreads) {
        const std::uint32_t row = vectors.quotient(item);
        const std::int64_t i = vectors.rest(item, row) * kVector;
        const std::int64_t at = row * 2 * table.half + i;
        float a[8], b[8], cosines[8], sines[8];
        load_eight<kBfloat16>(x, at, a);
        load_eight<kBfloat16>(x, at + table.half, b);
        const std::int64_t position = positions[heads.quotient(row)];
        if (position < table.positions) {
            load_eight<false>(table.values, position * 2 * table.half + i, cosines);
            load_eight<false>(table.values, position * 2 * table.half + table.half + i, sines);
        } else {
            angles(table, position, i, kVector, cosines, sines);
        }
#pragma unroll
        for (int k = 0; k < 8; ++k) shared::rotate(a[k], b[k], cosines[k], sign * sines[k]);
        store_eight<kBfloat16>(x, at, a);
        store_eight<kBfloat16>(x, at + table.half, b);
    }
}

// The same for any rows.
__global__ void __launch_bounds__(kThreads)
    rotate_kernel(Elements x, const std::int32_t* positions, RopeRows table, std::int64_t tokens,
                  std::int64_t heads, float sign) {
    const std::int64_t half = table.half;
    const std::int64_t vectors = (half + kVector - 1) / kVector;
    const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
    std::int64_t item = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    for (; item < tokens * heads * vectors; item += step) {
        const std::int64_t row = item / vectors;
        const std::int64_t i = item % vectors * kVector;
        const std::int64_t count = half - i;
        float a[8], b[8], cosines[8] = {}, sines[8] = {};
        load8(x, row * 2 * half + i, count, a);
        load8(x, row * 2 * half + half + i, count, b);
        angles(table, positions[row / heads], i, count, cosines, sines);
#pragma unroll
        for (int k = 0; k < 8; ++k) shared::rotate(a[k], b[k], cosines[k], sign * sines[k]);
        store8(x, row * 2 * half + i, count, a);
        store8(x, row * 2 * half + half + i, count, b);
    }
}

void run(Work& work, const Tensor& x, const std::int32_t* positions, const RopeRows& table, float sign) {
    const std::int64_t vectors = ceil_div(table.half, kVector);
    const std::int64_t items = x.dim(0) * x.dim(1) * vectors;
    const std::int64_t blocks = std::min(ceil_div(items, kThreads), kGridBlocks);
    const Elements rows = elements(x, table.half);
    if (rows.vector && table.values.vector && items < kDividends) {
        work.launch(rows.is_bfloat16 ? rotate_rows_kernel<true> : rotate_rows_kernel<false>, blocks, kThreads,
                    0, rows, positions, table, static_cast<std::uint32_t>(items), shared::divider(vectors),
                    shared::divider(x.dim(1)), sign);
    } else {
        work.launch(rotate_kernel, blocks, kThreads, 0, rows, positions, table, x.dim(0), x.dim(1), sign);
    }
}

void run(const char* op, Stream& stream, const Tensor& x, std::span<const std::int32_t> positions,
         const RopeTable& table, float sign) {
    std::int64_t last = 0;
    for (const std::int32_t position : positions) last = std::max<std::int64_t>(last, position);
    Work work(stream, op);
    const HeldRopeRows held = rope_rows(stream, table, last + 1);
    run(work, x, work.table(positions), held.rows, sign);
}

}  // namespace

void rope(Stream& stream, Tensor x, std::span<const std::int32_t> positions, const RopeTable& table) {
    run("rope", stream, x, positions, table, 1.0f);
}

void rope(Stream& stream, Tensor x, const Tensor& positions, std::int64_t limit, const RopeTable& table) {
    Work work(stream, "rope");
    const HeldRopeRows held = rope_rows(stream, table, limit);
    run(work, x, positions.data<std::int32_t>(), held.rows, 1.0f);
}

void rope_backward(Stream& stream, Tensor dx, std::span<const std::int32_t> positions,
                   const RopeTable& table) {
    run("rope_backward", stream, dx, positions, table, -1.0f);
}

}  // namespace tandem::ops::TANDEM_KERNELS
