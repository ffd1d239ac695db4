// Quantisation: the largest magnitude under each scale by a block of threads, then eight elements a thread.
// The scales are made on the host, where ranks agree on them.
#include "common/error.h"
#include "common/ops/cuda/elements.cuh"
#include "common/ops/cuda/reduce.cuh"
#include "common/ops/cuda/work.cuh"
#include "common/ops/quantize.h"
#include "common/ops/shared/divider.h"
#include "common/ops/shared/e4m3.h"

namespace tandem::ops::TANDEM_KERNELS {
namespace {

struct Box {
    const std::byte* data;
    std::int64_t stride;  // bytes
    std::int64_t row, column, rows, columns;
    bool is_bfloat16, vector, block;  // block: scales of 128 × 128, else of a row
    std::int64_t first_cell_row, first_cell_column, cell_columns;  // the cells of the grid that the box meets
};

__device__ __forceinline__ void load_row(const Box& box, std::int64_t row, std::int64_t at,
                                         std::int64_t count, float (&v)[8]) {
    const Elements elements{const_cast<std::byte*>(box.data) + row * box.stride, box.is_bfloat16, box.vector};
    load8(elements, at, count, v);
}

struct Range {
    std::int64_t begin, end;
};

// Cell `cell` of those along one side, as rows or columns of the box.
__device__ __forceinline__ Range cell_range(std::int64_t cell, std::int64_t start, std::int64_t count) {
    const std::int64_t begin = cell * kScaleBlock - start;
    const std::int64_t end = begin + kScaleBlock;
    return {begin < 0 ? 0 : begin, end < count ? end : count};
}

// Grid: the cells that the box meets. Magnitudes as bits, whose order is the numbers': a NaN is the largest.
__global__ void __launch_bounds__(kThreads) amax_kernel(Box box, std::uint32_t* amax) {
    __shared__ std::uint32_t room[kThreads / 32];
    Range rows{blockIdx.x, static_cast<std::int64_t>(blockIdx.x) + 1};
    Range columns{0, box.columns};
    if (box.block) {
        rows = cell_range(box.first_cell_row + blockIdx.x / box.cell_columns, box.row, box.rows);
        columns = cell_range(box.first_cell_column + blockIdx.x % box.cell_columns, box.column, box.columns);
    }
    const auto vectors = static_cast<unsigned>((columns.end - columns.begin + kVector - 1) / kVector);
    const unsigned items = static_cast<unsigned>(rows.end - rows.begin) * vectors;
    std::uint32_t most = 0;
    const auto take = [&](float value) {
        const std::uint32_t magnitude = shared::bits_of(value) & 0x7fffffffu;
        most = magnitude > most ? magnitude : most;
    };
    if (box.vector && (columns.end - columns.begin) % kVector == 0) {
        // Whole accesses: eight of a thread are on their way before the first is used.
        constexpr int kAtOnce = 8;
        const std::byte* const first = box.data + rows.begin * box.stride;
        const int size = box.is_bfloat16 ? 2 : 4;
        const unsigned accesses = items * (kVector * size / 16);
        const unsigned of_row = vectors * (kVector * size / 16);
        for (unsigned begin = threadIdx.x; begin < accesses; begin += kThreads * kAtOnce) {
            Words words[kAtOnce];
#pragma unroll
            for (int n = 0; n < kAtOnce; ++n) {
                const unsigned i = begin + n * kThreads;
                words[n] = Words{};
                if (i < accesses)
                    words[n] =
                        load16(first + i / of_row * box.stride + columns.begin * size + i % of_row * 16);
            }
#pragma unroll
            for (int n = 0; n < kAtOnce; ++n) {
#pragma unroll
                for (int k = 0; k < 4; ++k) {
                    const std::uint32_t word = words[n].w[k];
                    take(shared::float_of(box.is_bfloat16 ? word << 16 : word));
                    if (box.is_bfloat16) take(shared::float_of(word & 0xffff0000u));
                }
            }
        }
    } else {
        for (unsigned i = threadIdx.x; i < items; i += kThreads) {
            const std::int64_t at = columns.begin + i % vectors * kVector;
            float v[8];
            load_row(box, rows.begin + i / vectors, at, columns.end - at, v);
#pragma unroll
            for (int k = 0; k < 8; ++k) take(v[k]);
        }
    }
#pragma unroll
    for (int step = 16; step > 0; step /= 2) {
        const std::uint32_t other = __shfl_xor_sync(kAllLanes, most, step);
        most = other > most ? other : most;
    }
    if (threadIdx.x % 32 == 0) room[threadIdx.x / 32] = most;
    __syncthreads();
    if (threadIdx.x != 0) return;
    for (int i = 1; i < kThreads / 32; ++i) most = room[i] > most ? room[i] : most;
    amax[blockIdx.x] = most;
}

// Items: (row, eight columns that have one scale), for boxes of whole accesses.
template <bool kBfloat16>
__global__ void __launch_bounds__(kThreads)
    quantize_rows_kernel(Box box, const float* scales, std::int64_t scale_columns, std::uint32_t items,
                         shared::Divider vectors, std::uint8_t* to) {
    for (std::uint32_t item = blockIdx.x * kThreads + threadIdx.x; item < items;
         item += gridDim.x * kThreads) {
        const std::uint32_t row = vectors.quotient(item);
        const std::int64_t at = vectors.rest(item, row) * kVector;
        float v[8];
        load_eight<kBfloat16>({const_cast<std::byte*>(box.data) + row * box.stride, kBfloat16, true}, at, v);
        const std::int64_t scale_at =
            box.block ? (box.row + row) / kScaleBlock * scale_columns + (box.column + at) / kScaleBlock
                      : box.row + row;
        const shared::ExactDivision by(scales[scale_at]);
        Pair pair{};
#pragma unroll
        for (int i = 0; i < 8; i += 2) {
            const float first = by.of(v[i]), second = by.of(v[i + 1]);
            const std::uint32_t both =
                box.block ? shared::e4m3_pair(first, second)
                          : (static_cast<std::uint32_t>(shared::int8_value(first)) & 0xffu) |
                                (static_cast<std::uint32_t>(shared::int8_value(second)) & 0xffu) << 8;
            pair.w[i / 4] |= both << (8 * (i % 4));
        }
        store_pair(to + std::int64_t{item} * kVector, pair);
    }
}

// The same for any box: eight columns start at multiples of eight of the whole weight.
__global__ void __launch_bounds__(kThreads)
    quantize_kernel(Box box, const float* scales, std::int64_t scale_columns, std::uint8_t* to) {
    const std::int64_t lead = box.column % kVector;
    const std::int64_t vectors = (lead + box.columns + kVector - 1) / kVector;
    const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
    std::int64_t item = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    for (; item < box.rows * vectors; item += step) {
        const std::int64_t row = item / vectors;
        const std::int64_t whole = item % vectors * kVector - lead;  // some of the first eight may be missing
        const std::int64_t at = whole < 0 ? 0 : whole;
        const std::int64_t end = whole + kVector < box.columns ? whole + kVector : box.columns;
        const std::int64_t scale_at =
            box.block ? (box.row + row) / kScaleBlock * scale_columns + (box.column + at) / kScaleBlock
                      : box.row + row;
        const float scale = scales[scale_at];
        float v[8];
        load_row(box, row, at, end - at, v);
        std::uint32_t words[2] = {};
#pragma unroll
        for (int i = 0; i < 8; ++i) {
            const float x = v[i] / scale;
            const std::uint32_t q =
                box.block ? shared::e4m3_bits(x) : static_cast<std::uint32_t>(shared::int8_value(x)) & 0xffu;
            words[i / 4] |= q << (8 * (i % 4));
        }
        std::uint8_t* const target = to + row * box.columns + at;
        if (end - at == kVector && reinterpret_cast<std::uintptr_t>(target) % 4 == 0) {
            reinterpret_cast<std::uint32_t*>(target)[0] = words[0];
            reinterpret_cast<std::uint32_t*>(target)[1] = words[1];
        } else {
            for (int i = 0; i < end - at; ++i)
                target[i] = static_cast<std::uint8_t>(words[i / 4] >> (8 * (i % 4)));
        }
    }
}

Box device_box(const WeightBox& box, const ScaleGrid& grid) {
    const std::int64_t align = grid.kind == Quantization::fp8_block ? box.column % kVector : 0;
    const bool aligned =
        reinterpret_cast<std::uintptr_t>(box.data) % 16 == 0 && box.stride % 16 == 0 && align == 0;
    Box result{};
    result.data = box.data;
    result.stride = static_cast<std::int64_t>(box.rows > 1 ? box.stride : 0);
    result.row = box.row;
    result.column = box.column;
    result.rows = box.rows;
    result.columns = box.columns;
    result.is_bfloat16 = box.dtype == DType::bfloat16;
    result.vector = aligned && box.column % kVector == 0;
    result.block = grid.kind == Quantization::fp8_block;
    result.first_cell_row = box.row / kScaleBlock;
    result.first_cell_column = box.column / kScaleBlock;
    result.cell_columns =
        (box.column + box.columns + kScaleBlock - 1) / kScaleBlock - result.first_cell_column;
    return result;
}

}  // namespace

void accumulate_amax(Stream& stream, const WeightBox& box, const ScaleGrid& grid, std::span<float> amax) {
    if (box.rows == 0 || box.columns == 0) return;
    const Box there = device_box(box, grid);
    const std::int64_t cell_rows =
        there.block ? ceil_div(box.row + box.rows, kScaleBlock) - there.first_cell_row : box.rows;
    const std::int64_t cell_columns = there.block ? there.cell_columns : 1;
    std::vector<std::uint32_t> found(static_cast<std::size_t>(cell_rows * cell_columns));
    {
        Work work(stream, "accumulate_amax");
        std::uint32_t* const cells = work.scratch<std::uint32_t>(cell_rows * cell_columns);
        work.launch(amax_kernel, cell_rows * cell_columns, kThreads, 0, there, cells);
        work.download(cells, std::span<std::uint32_t>(found));
        work.synchronize();
    }
    const std::int64_t first_row = there.block ? there.first_cell_row : box.row;
    const std::int64_t first_column = there.block ? there.first_cell_column : 0;
    for (std::size_t i = 0; i < found.size(); ++i) {
        const std::int64_t row = first_row + static_cast<std::int64_t>(i) / cell_columns;
        const std::int64_t column = first_column + static_cast<std::int64_t>(i) % cell_columns;
        require(found[i] < 0x7f800000u,
                "accumulate_amax: the weight holds NaN or infinity under the scale ({}, {})", row, column);
        float& most = amax[static_cast<std::size_t>(row * grid.scale_columns() + column)];
        most = std::max(most, shared::float_of(found[i]));
    }
}

Checksum quantize(Stream& stream, const WeightBox& box, const ScaleGrid& grid, std::span<const float> scales,
                  Span to) {
    {
        Work work(stream, "quantize");
        const float* const there = work.upload(scales);
        const Box from = device_box(box, grid);
        auto* const target = reinterpret_cast<std::uint8_t*>(to.data);
        const std::int64_t whole = box.rows * box.columns / kVector;
        if (from.vector && box.columns % kVector == 0 && whole < kDividends &&
            reinterpret_cast<std::uintptr_t>(target) % sizeof(Pair) == 0) {
            work.launch(from.is_bfloat16 ? quantize_rows_kernel<true> : quantize_rows_kernel<false>,
                        std::min(ceil_div(whole, kThreads), kGridBlocks), kThreads, 0, from, there,
                        grid.scale_columns(), static_cast<std::uint32_t>(whole),
                        shared::divider(std::max<std::int64_t>(1, box.columns / kVector)), target);
        } else {
            const std::int64_t items = box.rows * (ceil_div(box.columns, kVector) + 1);
            work.launch(quantize_kernel, std::min(ceil_div(items, kThreads), kGridBlocks), kThreads, 0, from,
                        there, grid.scale_columns(), target);
        }
    }
    return checksum(stream, to);
}

}  // namespace tandem::ops::TANDEM_KERNELS
