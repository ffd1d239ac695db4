// A decode step's products: so few rows of x that reading the weight is all the time there is. No algorithm of
// cuBLASLt cuts the sums without leaving the order of additions to chance, and uncut ones of 2560 outputs keep
// a sixth of an H100 busy. Here the eight warps of a block share out the sums of 16 or 32 outputs, 128 terms at
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
constexpr int kFewRowsThreads = 32 * kWarps;
constexpr int kTurn = 128;  // terms of a warp's turn: warp w takes the turns w, w + 8, …

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

// A lane's part of 8 kRows rows of a matrix, kAhead terms from `at` on.
template <int kRows, int kAhead>
struct Fragments {
    Words of[kRows][kAhead / 32];

    __device__ __forceinline__ void load(const std::byte* matrix, int first, int rows, int at, int terms) {
        const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
        for (int r = 0; r < kRows; ++r) {
#pragma unroll
            for (int i = 0; i < kAhead / 32; ++i)
                of[r][i] =
                    load_terms(matrix, first + 8 * r + lane / 4, rows, at + 32 * i + 8 * (lane % 4), terms);
        }
    }
};

template <int kTiles, int kColumns>
using Sums = float[kTiles][kColumns][4];

template <int kTiles, int kColumns, int kAhead>
__device__ __forceinline__ void add_products(const Fragments<2 * kTiles, kAhead>& weight,
                                             const Fragments<kColumns, kAhead>& x,
                                             Sums<kTiles, kColumns>& sums) {
#pragma unroll
    for (int i = 0; i < kAhead / 32; ++i) {
#pragma unroll
        for (int four = 0; four < 4; four += 2) {
#pragma unroll
            for (int tile = 0; tile < kTiles; ++tile) {
                const Words &upper = weight.of[2 * tile][i], &lower = weight.of[2 * tile + 1][i];
                const std::uint32_t a[4] = {upper.w[four], lower.w[four], upper.w[four + 1],
                                            lower.w[four + 1]};
#pragma unroll
                for (int c = 0; c < kColumns; ++c) {
                    const std::uint32_t b[2] = {x.of[c][i].w[four], x.of[c][i].w[four + 1]};
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

template <int kTiles, int kColumns>
__device__ __forceinline__ void store_parts(const Sums<kTiles, kColumns>& sums, float* parts) {
    using P = Parts<kTiles, kColumns>;
    const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
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
}

template <int kTiles, int kColumns>
__device__ __forceinline__ void add_parts(const FewRows& p, const float* parts, int row, int output) {
    using P = Parts<kTiles, kColumns>;
    for (int i = static_cast<int>(threadIdx.x); i < 16 * kTiles * 8 * kColumns; i += kFewRowsThreads) {
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

// A block takes items (16 kTiles outputs, 8 kColumns rows of x) in turn, those of the same weights one after
// another. kAhead terms of the weight are on their way while the ones before are used, across items too.
template <int kTiles, int kColumns, int kAhead>
__global__ void __launch_bounds__(kFewRowsThreads, kTiles* kColumns > 2 ? 1 : 2)
    few_rows_kernel(FewRows p, int items) {
    TANDEM_DYNAMIC_SHARED(memory);
    float* parts = reinterpret_cast<float*>(memory);
    const int groups = (p.rows + 8 * kColumns - 1) / (8 * kColumns);
    const int first_term = static_cast<int>(threadIdx.x) / 32 * kTurn;
    const auto next_term = [](int term) {  // of this warp
        return (term + kAhead) % kTurn == 0 ? term + kAhead + (kWarps - 1) * kTurn : term + kAhead;
    };
    Fragments<2 * kTiles, kAhead> weight;
    int item = static_cast<int>(blockIdx.x), turn = 0;
    weight.load(p.weight, item / groups * 16 * kTiles, p.outputs, first_term, p.terms);
    for (; item < items; item += static_cast<int>(gridDim.x), ++turn) {
        const int row = item % groups * 8 * kColumns, output = item / groups * 16 * kTiles;
        Sums<kTiles, kColumns> sums = {};
        for (int term = first_term; term < p.terms; term = next_term(term)) {
            Fragments<kColumns, kAhead> x;
            x.load(p.x, row, p.rows, term, p.terms);
            int next = next_term(term), next_output = output;
            if (next >= p.terms) {
                next = first_term;
                next_output = (item + static_cast<int>(gridDim.x)) / groups * 16 * kTiles;
            }
            Fragments<2 * kTiles, kAhead> coming;
            coming.load(p.weight, next_output, p.outputs, next, p.terms);
            add_products<kTiles, kColumns, kAhead>(weight, x, sums);
            weight = coming;
        }
        float* const mine = parts + turn % 2 * (Parts<kTiles, kColumns>::kBytes / sizeof(float));
        store_parts<kTiles, kColumns>(sums, mine);
        __syncthreads();
        add_parts<kTiles, kColumns>(p, mine, row, output);
    }
}

constexpr int kMultiprocessors = 132;  // of an H100; no result depends on it

// Each block as many items as the others, up to the last turn.
template <int kTiles, int kColumns, int kAhead>
void launch(Work& work, const FewRows& p) {
    constexpr int kResident = kMultiprocessors * (kTiles * kColumns > 4 ? 1 : 2);
    const std::int64_t items = ceil_div(p.outputs, 16 * kTiles) * ceil_div(p.rows, 8 * kColumns);
    const std::int64_t each = ceil_div(items, kResident);
    work.launch(few_rows_kernel<kTiles, kColumns, kAhead>, ceil_div(items, each), kFewRowsThreads,
                2 * Parts<kTiles, kColumns>::kBytes, p, static_cast<int>(items));
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
    if (p.rows == 0 || p.outputs == 0) return;
    // What was fastest on an H100. Many rows want large tiles, which read x less often, where there are enough of them.
    const bool wide = p.outputs >= 2048;
    if (p.rows <= 8) {
        launch<1, 1, 128>(work, p);
    } else if (p.rows <= 16 || (p.rows <= 32 && !wide)) {
        launch<1, 2, 128>(work, p);
    } else if (p.rows <= 32 || !wide) {
        launch<2, 2, 64>(work, p);
    } else {
        launch<2, 8, 64>(work, p);
    }
}

}  // namespace tandem::ops::TANDEM_KERNELS
