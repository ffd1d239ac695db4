// A decode step's products: so few rows of x that reading the weight is all the time there is. No algorithm of
// cuBLASLt cuts the sums without leaving the order of additions to chance, and uncut ones of 2560 outputs keep
// a sixth of an H100 busy. Here the eight warps of a block share out the sums of 16 or 32 outputs, 64 terms at
// a time, each reading its weights straight into the fragments of m16n8k16 with the outputs as the rows of a
// (instructions.cuh); the warps' sums are added in their order. The order of a sum depends on its length alone.
//
// A lane's 16 bytes are eight neighbouring terms of one output: the first four are its part of one product,
// the last four of the next. Inside a product the order of terms does not matter, as long as x has the same.
#include "common/ops/cuda/few_rows.cuh"

#include "common/ops/cuda/elements.cuh"
#include "common/ops/cuda/instructions.cuh"
#include "common/ops/cuda/work.cuh"
#include "common/ops/shared/gemm_layout.h"

namespace tandem::ops::TANDEM_KERNELS {
namespace {

constexpr int kWarps = 8;
constexpr int kThreads = 32 * kWarps;
constexpr int kTurn = 64;  // terms of a warp's turn
constexpr int kHalves = kTurn / 32;

struct FewRows {
    const std::byte *x, *weight;  // bfloat16 [rows, terms], [outputs, terms]
    const std::byte* bias;        // bfloat16 [outputs], or null
    Elements y;                   // [rows, outputs]
    int rows, outputs, terms;
};

__device__ __forceinline__ Words load_terms(const std::byte* matrix, int row, int rows, int at, int terms) {
    if (row >= rows || at >= terms) return {};
    return load16(matrix + 2 * (static_cast<std::int64_t>(row) * terms + at));
}

// A lane's part of 16 kTiles outputs by kTurn terms.
template <int kTiles>
struct Weights {
    Words of[kTiles][2][kHalves];

    __device__ __forceinline__ void load(const FewRows& p, int first, int turn) {
        const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
        for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
            for (int row = 0; row < 2; ++row) {
#pragma unroll
                for (int half = 0; half < kHalves; ++half)
                    of[tile][row][half] =
                        load_terms(p.weight, first + 16 * tile + 8 * row + lane / 4, p.outputs,
                                   turn * kTurn + 32 * half + 8 * (lane % 4), p.terms);
            }
        }
    }
};

template <int kTiles, int kColumns>
using Sums = float[kTiles][kColumns][4];

// Adds the products of one turn, for 8 kColumns rows of x from `row` on.
template <int kTiles, int kColumns>
__device__ __forceinline__ void add_turn(const FewRows& p, const Weights<kTiles>& weights, int row, int turn,
                                         Sums<kTiles, kColumns>& sums) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
    for (int half = 0; half < kHalves; ++half) {
        Words x[kColumns];
#pragma unroll
        for (int c = 0; c < kColumns; ++c)
            x[c] = load_terms(p.x, row + 8 * c + lane / 4, p.rows, turn * kTurn + 32 * half + 8 * (lane % 4),
                              p.terms);
#pragma unroll
        for (int four = 0; four < 4; four += 2) {
#pragma unroll
            for (int tile = 0; tile < kTiles; ++tile) {
                const Words &upper = weights.of[tile][0][half], &lower = weights.of[tile][1][half];
                const std::uint32_t a[4] = {upper.w[four], lower.w[four], upper.w[four + 1],
                                            lower.w[four + 1]};
#pragma unroll
                for (int c = 0; c < kColumns; ++c) {
                    const std::uint32_t b[2] = {x[c].w[four], x[c].w[four + 1]};
                    multiply(sums[tile][c], a, b);
                }
            }
        }
    }
}

// Sums of the block's warps in shared memory, [warp][row of x][output].
template <int kTiles, int kColumns>
struct Parts {
    static constexpr int kStride = 16 * kTiles + 4;  // the stores of a warp fall into different banks
    static constexpr int kWarp = 8 * kColumns * kStride;
    static constexpr std::size_t kBytes = sizeof(float) * kWarps * kWarp;
};

// Grid: (16 kTiles outputs, 8 kColumns rows of x); blocks of the same weights are neighbours.
template <int kTiles, int kColumns>
__global__ void __launch_bounds__(kThreads, kTiles* kColumns > 2 ? 1 : 2) few_rows_kernel(FewRows p) {
    TANDEM_DYNAMIC_SHARED(memory);
    using P = Parts<kTiles, kColumns>;
    float* const parts = reinterpret_cast<float*>(memory);
    const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
    const int groups = (p.rows + 8 * kColumns - 1) / (8 * kColumns);
    const int row = static_cast<int>(blockIdx.x) % groups * 8 * kColumns;
    const int output = static_cast<int>(blockIdx.x) / groups * 16 * kTiles;

    const int turns = (p.terms + kTurn - 1) / kTurn;
    Sums<kTiles, kColumns> sums = {};
    Weights<kTiles> weights, next;
    weights.load(p, output, warp);
    for (int turn = warp; turn < turns; turn += kWarps) {
        next.load(p, output, turn + kWarps);
        add_turn<kTiles, kColumns>(p, weights, row, turn, sums);
        weights = next;
    }

#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
        for (int c = 0; c < kColumns; ++c) {
#pragma unroll
            for (int e = 0; e < 4; ++e)
                parts[warp * P::kWarp + (8 * c + 2 * (lane % 4) + e % 2) * P::kStride + 16 * tile +
                      8 * (e / 2) + lane / 4] = sums[tile][c][e];
        }
    }
    __syncthreads();

    for (int i = static_cast<int>(threadIdx.x); i < 16 * kTiles * 8 * kColumns; i += kThreads) {
        const int at_output = output + i % (16 * kTiles), at_row = row + i / (16 * kTiles);
        if (at_output >= p.outputs || at_row >= p.rows) continue;
        float sum = 0.0f;
#pragma unroll
        for (int w = 0; w < kWarps; ++w)
            sum += parts[w * P::kWarp + i / (16 * kTiles) * P::kStride + i % (16 * kTiles)];
        if (p.bias) sum += load1({const_cast<std::byte*>(p.bias), true, false}, at_output);
        store1(p.y, static_cast<std::int64_t>(at_row) * p.outputs + at_output, sum);
    }
}

template <int kTiles, int kColumns>
void launch(Work& work, const FewRows& p) {
    work.launch(few_rows_kernel<kTiles, kColumns>,
                ceil_div(p.outputs, 16 * kTiles) * ceil_div(p.rows, 8 * kColumns), kThreads,
                Parts<kTiles, kColumns>::kBytes, p);
}

bool rows_aligned(const Tensor& matrix) {
    return elements(matrix, matrix.dim(1)).vector;
}

}  // namespace

bool takes_few_rows(const Tensor& x, const Tensor& weight) {
    constexpr std::int64_t kMost = std::int64_t{1} << 30;  // outputs and terms count in 32 bits
    return x.dtype() == DType::bfloat16 && x.dim(0) <= shared::kDecodeRows && x.dim(1) > 0 &&
           x.dim(1) < kMost && weight.dim(0) < kMost && rows_aligned(x) && rows_aligned(weight);
}

void linear_few_rows(Stream& stream, const Tensor& x, const Tensor& weight, const Tensor& bias, Tensor y) {
    Work work(stream, "linear");
    const FewRows p{.x = x.raw(),
                    .weight = weight.raw(),
                    .bias = bias.defined() ? bias.raw() : nullptr,
                    .y = flat(y),
                    .rows = static_cast<int>(x.dim(0)),
                    .outputs = static_cast<int>(weight.dim(0)),
                    .terms = static_cast<int>(x.dim(1))};
    if (p.rows <= 8) {
        launch<1, 1>(work, p);
    } else if (p.rows <= 16) {
        launch<1, 2>(work, p);
    } else if (p.rows <= 32) {
        launch<2, 4>(work, p);
    } else {
        launch<2, 8>(work, p);
    }
}

}  // namespace tandem::ops::TANDEM_KERNELS
