// RMSNorm. Rows that fit a block's registers and whole accesses: rms_norm_rows.cuh. The kernels here take any
// rows: a warp a row where they are short, a block where they are long.
#include "common/ops/cuda/column_sums.cuh"
#include "common/ops/cuda/elements.cuh"
#include "common/ops/cuda/reduce.cuh"
#include "common/ops/cuda/rms_norm_rows.cuh"
#include "common/ops/cuda/work.cuh"
#include "common/ops/elementwise.h"
#include "common/ops/rms_norm.h"

namespace tandem::ops::TANDEM_KERNELS {
namespace {

constexpr int kHeld = 4;  // vectors of a row that a thread keeps
constexpr std::int64_t kWarpRow = 32 * kVector * kHeld;
constexpr std::int64_t kPartials = 512;  // of the weight's gradient, for rows of a block each

// A row belongs to a block, or to a warp of it.
template <bool kWarps>
struct Rows {
    static constexpr int kWidth = kWarps ? 32 : kThreads;  // threads of a row
    static constexpr int kSideBySide = kThreads / kWidth;
    __device__ static int thread() { return static_cast<int>(threadIdx.x) % kWidth; }
    __device__ static std::int64_t first() {
        return static_cast<std::int64_t>(blockIdx.x) * kSideBySide + threadIdx.x / kWidth;
    }
    __device__ static std::int64_t step() { return static_cast<std::int64_t>(gridDim.x) * kSideBySide; }
    __device__ static float sum(float value) {
        if constexpr (kWarps) {
            return warp_sum(value);
        } else {
            __shared__ float room[32];
            return block_sum(value, room);
        }
    }
};

template <bool kWarps>
__global__ void __launch_bounds__(kThreads)
    forward_kernel(Elements x, Elements weight, float eps, float inverse_dim, std::int64_t rows,
                   std::int64_t dim, Elements y, float* rstd) {
    using Row = Rows<kWarps>;
    constexpr std::int64_t kStep = Row::kWidth * kVector;
    const std::int64_t begin = Row::thread() * kVector;
    for (std::int64_t row = Row::first(); row < rows; row += Row::step()) {
        const std::int64_t base = row * dim;
        float held[kHeld][8];
        float sum = 0.0f;
#pragma unroll
        for (int n = 0; n < kHeld; ++n) {
            const std::int64_t at = begin + n * kStep;
            if (at >= dim) break;
            load8(x, base + at, dim - at, held[n]);
#pragma unroll
            for (int i = 0; i < 8; ++i) sum += held[n][i] * held[n][i];
        }
        for (std::int64_t at = begin + kHeld * kStep; at < dim; at += kStep) {
            float v[8];
            load8(x, base + at, dim - at, v);
#pragma unroll
            for (int i = 0; i < 8; ++i) sum += v[i] * v[i];
        }
        const float r = rsqrtf(Row::sum(sum) * inverse_dim + eps);
        if (rstd != nullptr && Row::thread() == 0) rstd[row] = r;
        const auto write = [&](std::int64_t at, float(&v)[8]) {
            float w[8];
            load8(weight, at, dim - at, w);
#pragma unroll
            for (int i = 0; i < 8; ++i) v[i] = v[i] * r * w[i];
            store8(y, base + at, dim - at, v);
        };
#pragma unroll
        for (int n = 0; n < kHeld; ++n) {
            const std::int64_t at = begin + n * kStep;
            if (at < dim) write(at, held[n]);
        }
        for (std::int64_t at = begin + kHeld * kStep; at < dim; at += kStep) {
            float v[8];
            load8(x, base + at, dim - at, v);
            write(at, v);
        }
    }
}

// dx = rstd * (dy * w - x * rstd² * mean(dy * w * x)); dw = sum over rows of dy * x * rstd. Each group of
// threads that has rows of its own leaves a row of `partial`: in registers while it runs, as far as they
// reach, and in memory for what lies further out.
template <bool kWarps>
__global__ void __launch_bounds__(kThreads, 2)
    backward_kernel(Elements dy, Elements x, Elements weight, const float* rstd, float inverse_dim,
                    std::int64_t rows, std::int64_t dim, Elements dx, bool accumulate, float* partial) {
    using Row = Rows<kWarps>;
    constexpr std::int64_t kStep = Row::kWidth * kVector;
    const std::int64_t begin = Row::thread() * kVector;
    float* const mine = partial + Row::first() * dim;
    float sums[kHeld][8] = {};
    for (std::int64_t at = begin + kHeld * kStep; at < dim; at += kStep) {
        for (int i = 0; i < 8 && i < dim - at; ++i) mine[at + i] = 0.0f;
    }
    for (std::int64_t row = Row::first(); row < rows; row += Row::step()) {
        const std::int64_t base = row * dim;
        const float r = rstd[row];
        float dot = 0.0f;
        for (std::int64_t at = begin; at < dim; at += kStep) {
            float d[8], v[8], w[8];
            load8(dy, base + at, dim - at, d);
            load8(x, base + at, dim - at, v);
            load8(weight, at, dim - at, w);
#pragma unroll
            for (int i = 0; i < 8; ++i) dot += d[i] * w[i] * v[i];
        }
        const float factor = r * r * (Row::sum(dot) * inverse_dim);
        // The row comes again, now from the cache.
        const auto write = [&](std::int64_t at, float(&sum)[8]) {
            float d[8], v[8], w[8];
            load8(dy, base + at, dim - at, d);
            load8(x, base + at, dim - at, v);
            load8(weight, at, dim - at, w);
#pragma unroll
            for (int i = 0; i < 8; ++i) {
                sum[i] += d[i] * (v[i] * r);
                d[i] = r * (d[i] * w[i] - v[i] * factor);
            }
            if (accumulate) {
                load8(dx, base + at, dim - at, w);
#pragma unroll
                for (int i = 0; i < 8; ++i) d[i] += w[i];
            }
            store8(dx, base + at, dim - at, d);
        };
#pragma unroll
        for (int n = 0; n < kHeld; ++n) {
            const std::int64_t at = begin + n * kStep;
            if (at < dim) write(at, sums[n]);
        }
        for (std::int64_t at = begin + kHeld * kStep; at < dim; at += kStep) {
            float sum[8] = {};
            write(at, sum);
            for (int i = 0; i < 8 && i < dim - at; ++i) mine[at + i] += sum[i];
        }
    }
#pragma unroll
    for (int n = 0; n < kHeld; ++n) {
        const std::int64_t at = begin + n * kStep;
#pragma unroll
        for (int i = 0; i < 8; ++i) {
            if (at + i < dim) mine[at + i] = sums[n][i];
        }
    }
}

// Calls launch(shape) with the smallest shape that holds rows of `dim`; false where there is none.
template <bool kBfloat16, typename Launch>
bool with_rows(std::int64_t dim, const Launch& launch) {
    constexpr int kPer = kPerWords<kBfloat16>;
    if (dim <= 128) {
        launch(RowShape<kBfloat16, 256, 128 / kPer, 1, 4>());
    } else if (dim <= 128 * kPer * 2) {
        launch(RowShape<kBfloat16, 128, 128, 2, 1>());
    } else if (dim <= 256 * kPer * 2) {
        launch(RowShape<kBfloat16, 256, 256, 2, 1>());
    } else if (dim <= 512 * kPer * 2) {
        launch(RowShape<kBfloat16, 512, 512, 2, 1>());
    } else {
        return false;
    }
    return true;
}

template <typename Launch, typename... E>
bool with_rows(const Launch& launch, std::int64_t dim, const E&... tensors) {
    const bool whole = (tensors.vector && ...);
    if (whole && (tensors.is_bfloat16 && ...)) return with_rows<true>(dim, launch);
    return whole && !(tensors.is_bfloat16 || ...) && with_rows<false>(dim, launch);
}

}  // namespace

void rms_norm(Stream& stream, const Tensor& x, const Tensor& weight, float eps, Tensor y, Tensor rstd) {
    Work work(stream, "rms_norm");
    const std::int64_t dim = x.dim(-1);
    const std::int64_t rows = x.numel() / dim;
    const Elements from = elements(x, dim), factors = elements(weight, dim), to = elements(y, dim);
    const float inverse_dim = 1.0f / static_cast<float>(dim);
    float* const stds = rstd.defined() ? rstd.data<float>() : nullptr;
    const auto in_registers = [&]<typename Shape>(Shape) {
        const NormRows in{from.data, factors.data, eps, inverse_dim, rows, static_cast<int>(dim)};
        work.launch(norm_rows_kernel<Shape>, std::min(ceil_div(rows, Shape::kBlockRows), kGridBlocks),
                    Shape::kThreads, 0, in, to.data, stds);
    };
    if (with_rows(in_registers, dim, from, factors, to)) return;
    const bool warps = dim <= kWarpRow;
    work.launch(warps ? forward_kernel<true> : forward_kernel<false>,
                std::min(warps ? ceil_div(rows, kThreads / 32) : rows, kGridBlocks), kThreads, 0, from,
                factors, eps, inverse_dim, rows, dim, to, stds);
}

void add_rms_norm(Stream& stream, Tensor x, const Tensor& update, const Tensor& weight, float eps, Tensor y) {
    add(stream, x, update);
    rms_norm(stream, x, weight, eps, y, {});
}

void rms_norm_backward(Stream& stream, const Tensor& dy, const Tensor& x, const Tensor& weight,
                       const Tensor& rstd, Tensor dx, Tensor dweight, bool accumulate_dx) {
    Work work(stream, "rms_norm_backward");
    const std::int64_t dim = x.dim(-1);
    const std::int64_t rows = x.numel() / dim;
    const Elements gradient = elements(dy, dim), from = elements(x, dim), factors = elements(weight, dim),
                   to = elements(dx, dim);
    const float inverse_dim = 1.0f / static_cast<float>(dim);
    float* const sums = dweight.data<float>();
    const auto in_registers = [&]<typename Shape>(Shape) {
        const std::int64_t blocks = std::min(ceil_div(rows, Shape::kBlockRows), Shape::kPartials);
        const std::int64_t groups = blocks * Shape::kGroups;
        float* const partial = work.scratch<float>(groups * dim);
        const NormRows in{from.data, factors.data, 0.0f, inverse_dim, rows, static_cast<int>(dim)};
        work.launch(norm_rows_backward_kernel<Shape>, blocks, Shape::kThreads, 0, in, gradient.data,
                    rstd.data<float>(), to.data, accumulate_dx, partial);
        add_column_sums(work, partial, groups, dim, sums);
    };
    if (with_rows(in_registers, dim, gradient, from, factors, to)) return;
    const bool warps = dim <= kWarpRow;
    const std::int64_t side_by_side = warps ? kThreads / 32 : 1;
    const std::int64_t blocks = std::min(ceil_div(rows, side_by_side), kPartials);
    float* partial = work.scratch<float>(blocks * side_by_side * dim);
    work.launch(warps ? backward_kernel<true> : backward_kernel<false>, blocks, kThreads, 0, gradient, from,
                factors, rstd.data<float>(), inverse_dim, rows, dim, to, accumulate_dx, partial);
    add_column_sums(work, partial, blocks * side_by_side, dim, sums);
}

}  // namespace tandem::ops::TANDEM_KERNELS
