// RMSNorm of rows that fit the registers of the threads that share them: a row is read once, in 16-byte
// accesses that are all on their way before the first is used. Short rows (heads) belong to a few lanes,
// which take several at a time; long ones (the hidden state) to a block.
#pragma once

#include <cstdint>

#include "common/ops/cuda/elements.cuh"
#include "common/ops/cuda/instructions.cuh"
#include "common/ops/cuda/reduce.cuh"

namespace tandem::ops::TANDEM_KERNELS {

// How rows lie on threads: kWidth of the kThreads of a block share a row (32 at most, or all), of which each
// holds kHeld pieces of 16 bytes; kRows rows are loaded side by side.
template <bool kBfloat16Rows, int kThreadsOfBlock, int kWidthOfRow, int kHeldOfRow, int kRowsAtOnce>
struct RowShape {
    static constexpr bool kBfloat16 = kBfloat16Rows;
    static constexpr int kThreads = kThreadsOfBlock, kWidth = kWidthOfRow, kHeld = kHeldOfRow,
                         kRows = kRowsAtOnce;
    static constexpr int kPer = kPerWords<kBfloat16>;
    static constexpr int kElement = 16 / kPer;  // bytes
    static constexpr int kGroups = kThreads / kWidth;
    static constexpr std::int64_t kLongest = kWidth * kHeld * kPer;  // elements of a row
    static constexpr std::int64_t kBlockRows = kGroups * kRows;      // of a block at once
    // Backward: the blocks that an SM has at once, and the most blocks there are, each with sums of its own.
    // An H200 (132 SMs) and an A100 (108) run all of them at once. A constant, so that no sum depends on the
    // GPU. Rows on their way to shared memory, in a block that computes one at a time.
    static constexpr int kStages = kThreads > 256 ? 1 : 2;
    static constexpr int kBlocksOfSm = 512 / kThreads;
    static constexpr std::int64_t kPartials = 108 * kBlocksOfSm;

    __device__ static int thread() { return static_cast<int>(threadIdx.x) % kWidth; }
    __device__ static int group() { return static_cast<int>(threadIdx.x) / kWidth; }
    // The thread's n-th piece of a row, in elements.
    __device__ static int at(int n) { return (n * kWidth + thread()) * kPer; }
    __device__ static float sum(float value, float* room, int turn) {
        if constexpr (kWidth > 32) {
            return block_row_sum<kThreads / 32>(value, room, turn);
        } else {
#pragma unroll
            for (int step = kWidth / 2; step > 0; step /= 2) value += __shfl_xor_sync(kAllLanes, value, step);
            return value;
        }
    }
    __device__ static void load(const std::byte* from, std::int64_t row, std::int64_t rows, int dim,
                                Words (&words)[kHeld]) {
#pragma unroll
        for (int n = 0; n < kHeld; ++n) {
            words[n] = Words{};
            if (row < rows && at(n) < dim) words[n] = load16(from + (row * dim + at(n)) * kElement);
        }
    }
};

struct NormRows {
    const std::byte *x, *weight;
    float eps, inverse_dim;
    std::int64_t rows;
    int dim;
};

// y = x · rstd · weight with rstd = 1 / sqrt(mean(x²) + eps).
template <typename Shape>
__global__ void __launch_bounds__(Shape::kThreads) norm_rows_kernel(NormRows in, std::byte* y, float* rstd) {
    constexpr int kHeld = Shape::kHeld, kRows = Shape::kRows, kPer = Shape::kPer;
    __shared__ float room[2 * Shape::kThreads / 32];
    Words weight[kHeld];
    Shape::load(in.weight, 0, 1, in.dim, weight);
    const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * Shape::kBlockRows;
    int turn = 0;
    // All threads of a block make the same number of turns: they meet in the sums.
    for (std::int64_t begin = blockIdx.x * Shape::kBlockRows; begin < in.rows; begin += step) {
        const std::int64_t first = begin + Shape::group() * kRows;
        // The thread's pieces of its rows, all on their way.
        Words held[kRows][kHeld];
#pragma unroll
        for (int r = 0; r < kRows; ++r) Shape::load(in.x, first + r, in.rows, in.dim, held[r]);
#pragma unroll
        for (int r = 0; r < kRows; ++r) {
            const std::int64_t row = first + r;
            // rstd of the row
            float sum = 0.0f;
#pragma unroll
            for (int n = 0; n < kHeld; ++n) {
                float v[kPer];
                unpack<Shape::kBfloat16>(held[r][n], v);
#pragma unroll
                for (int i = 0; i < kPer; ++i) sum += v[i] * v[i];
            }
            const float scale = rsqrtf(Shape::sum(sum, room, turn++) * in.inverse_dim + in.eps);
            if (row >= in.rows) continue;
            // rstd and y are written
            if (rstd != nullptr && Shape::thread() == 0) rstd[row] = scale;
#pragma unroll
            for (int n = 0; n < kHeld; ++n) {
                if (Shape::at(n) >= in.dim) continue;
                float v[kPer], w[kPer];
                unpack<Shape::kBfloat16>(held[r][n], v);
                unpack<Shape::kBfloat16>(weight[n], w);
#pragma unroll
                for (int i = 0; i < kPer; ++i) v[i] = v[i] * scale * w[i];
                store16(y + (row * in.dim + Shape::at(n)) * Shape::kElement, pack<Shape::kBfloat16>(v));
            }
        }
    }
}

// With n = x · rstd:
//   dx      = rstd · (dy · weight - n · mean(dy · weight · n))
//   dweight = sum over rows of dy · n
// A group of threads sums dweight over the rows that it takes; group g of the grid leaves row g of `partial`,
// and add_column_sums sums those. backward_kernel of rms_norm.cu is the plain form.
template <typename Shape>
__global__ void __launch_bounds__(Shape::kThreads, Shape::kBlocksOfSm)
    norm_rows_backward_kernel(NormRows in, const std::byte* dy, const float* rstd, std::byte* dx,
                              bool accumulate, float* partial) {
    constexpr int kHeld = Shape::kHeld, kRows = Shape::kRows, kPer = Shape::kPer;
    __shared__ float room[2 * Shape::kThreads / 32];
    Words weight[kHeld];
    Shape::load(in.weight, 0, 1, in.dim, weight);
    float sums[kHeld][kPer] = {};  // dweight of this thread's columns, over its rows
    const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * Shape::kBlockRows;
    // Loads ahead. Registers hold two blocks of an SM at most: too few loads to keep the memory busy through
    // the sums. So later rows are on their way to shared memory, each thread's own pieces.
    constexpr bool kAhead = kRows == 1 && Shape::kGroups == 1;
    constexpr int kStages = Shape::kStages;
    __shared__ Words ahead[kAhead ? kStages : 1][kAhead ? 2 * kHeld : 1][kAhead ? Shape::kThreads : 1];
    const auto send = [&](std::int64_t row, int stage) {
#pragma unroll
        for (int n = 0; n < kHeld; ++n) {
            const bool there = row < in.rows && Shape::at(n) < in.dim;
            const std::int64_t from = there ? (row * in.dim + Shape::at(n)) * Shape::kElement : 0;
            copy_ahead(shared_address(&ahead[stage][n][threadIdx.x]), dy + from, there);
            copy_ahead(shared_address(&ahead[stage][kHeld + n][threadIdx.x]), in.x + from, there);
        }
        commit_ahead();
    };
    if constexpr (kAhead) {
        for (int stage = 0; stage < kStages; ++stage) send(blockIdx.x + stage * step, stage);
    }
    int turn = 0;
    for (std::int64_t begin = blockIdx.x * Shape::kBlockRows; begin < in.rows; begin += step) {
        const std::int64_t first = begin + Shape::group() * kRows;
        // The rows: rstd, and the thread's pieces of dy and x.
        Words gradient[kRows][kHeld], value[kRows][kHeld];
        float scale[kRows];
#pragma unroll
        for (int r = 0; r < kRows; ++r) scale[r] = first + r < in.rows ? rstd[first + r] : 0.0f;
        if constexpr (kAhead) {
            const int stage = turn % kStages;
            wait_ahead<kStages - 1>();
#pragma unroll
            for (int n = 0; n < kHeld; ++n) {
                gradient[0][n] = ahead[stage][n][threadIdx.x];
                value[0][n] = ahead[stage][kHeld + n][threadIdx.x];
            }
        } else {
#pragma unroll
            for (int r = 0; r < kRows; ++r) {
                Shape::load(dy, first + r, in.rows, in.dim, gradient[r]);
                Shape::load(in.x, first + r, in.rows, in.dim, value[r]);
            }
        }
#pragma unroll
        for (int r = 0; r < kRows; ++r) {
            const std::int64_t row = first + r;
            // dy · weight · x, summed over the row; and dweight
            float dot = 0.0f;
#pragma unroll
            for (int n = 0; n < kHeld; ++n) {
                float d[kPer], v[kPer], w[kPer];
                unpack<Shape::kBfloat16>(gradient[r][n], d);
                unpack<Shape::kBfloat16>(value[r][n], v);
                unpack<Shape::kBfloat16>(weight[n], w);
#pragma unroll
                for (int i = 0; i < kPer; ++i) {
                    dot += d[i] * w[i] * v[i];
                    sums[n][i] += d[i] * (v[i] * scale[r]);
                }
            }
            // n · mean(dy · weight · n) = x · factor
            const int stage = turn % kStages;
            const float factor = scale[r] * scale[r] * (Shape::sum(dot, room, turn++) * in.inverse_dim);
            // Past the barrier of the sum what lay in the stage has been read: it takes a later row.
            if constexpr (kAhead) send(begin + kStages * step, stage);
            // dx
            Words before[kHeld];
            if (accumulate) Shape::load(dx, row, in.rows, in.dim, before);
#pragma unroll
            for (int n = 0; n < kHeld; ++n) {
                float d[kPer], v[kPer], w[kPer];
                unpack<Shape::kBfloat16>(gradient[r][n], d);
                unpack<Shape::kBfloat16>(value[r][n], v);
                unpack<Shape::kBfloat16>(weight[n], w);
#pragma unroll
                for (int i = 0; i < kPer; ++i) d[i] = scale[r] * (d[i] * w[i] - v[i] * factor);
                if (row >= in.rows || Shape::at(n) >= in.dim) continue;
                if (accumulate) {
                    unpack<Shape::kBfloat16>(before[n], w);
#pragma unroll
                    for (int i = 0; i < kPer; ++i) d[i] += w[i];
                }
                store16(dx + (row * in.dim + Shape::at(n)) * Shape::kElement, pack<Shape::kBfloat16>(d));
            }
        }
    }
    // No copy may be under way to the shared memory of a block that has ended.
    if constexpr (kAhead) wait_ahead<0>();
    // dweight of the group's rows
    float* const mine =
        partial + (blockIdx.x * static_cast<std::int64_t>(Shape::kGroups) + Shape::group()) * in.dim;
#pragma unroll
    for (int n = 0; n < kHeld; ++n) {
#pragma unroll
        for (int i = 0; i < kPer; i += 4) {
            const Words words{{shared::bits_of(sums[n][i]), shared::bits_of(sums[n][i + 1]),
                               shared::bits_of(sums[n][i + 2]), shared::bits_of(sums[n][i + 3])}};
            if (Shape::at(n) < in.dim) store16(mine + Shape::at(n) + i, words);
        }
    }
}

}  // namespace tandem::ops::TANDEM_KERNELS
