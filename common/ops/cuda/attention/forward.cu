// The forward of attention: which kernel, and the rows of no segment.
#include "common/ops/attention.h"
#include "common/ops/cuda/attention/forward_fp32.cuh"
#include "common/ops/cuda/attention/forward_mma.cuh"
#include "common/ops/cuda/attention/forward_wgmma.cuh"

namespace tandem::ops::TANDEM_KERNELS {
namespace {

// Rows [begin, begin + count) of no segment.
__global__ void __launch_bounds__(kTileThreads)
    uncovered_kernel(std::int64_t begin, std::int64_t count, std::int64_t heads, std::int64_t head_dim,
                     std::int64_t q_rows, ForwardOut out, float* lse) {
    const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
    const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    const std::int64_t row = heads * head_dim;
    for (std::int64_t at = first; at < count * row; at += step) {
        store1(out, begin * row + at, 0.0f);
        if (out.rounded.data != nullptr) store1(out.rounded, begin * row + at, 0.0f);
    }
    for (std::int64_t at = first; at < count * heads; at += step)
        lse[at / count * q_rows + begin + at % count] = -INFINITY;
}

void clear_uncovered(Work& work, const AttentionInputs& in, std::vector<AttentionSegment> segments,
                     const ForwardOut& out, float* lse) {
    std::sort(segments.begin(), segments.end(),
              [](const auto& a, const auto& b) { return a.q_begin < b.q_begin; });
    segments.push_back({in.q_rows, 0, 0, 0, true});
    std::int64_t covered = 0;
    for (const AttentionSegment& segment : segments) {
        const std::int64_t count = segment.q_begin - covered;
        if (count > 0) {
            work.launch(uncovered_kernel,
                        std::min(ceil_div(count * in.heads * in.head_dim, kTileThreads), kGridBlocks),
                        kTileThreads, 0, covered, count, in.heads, in.head_dim, in.q_rows, out, lse);
        }
        covered = std::max(covered, segment.q_begin + segment.q_len);
    }
}

}  // namespace

AttentionInputs attention_inputs(const Tensor& q, const Tensor& k, const Tensor& v, float scale) {
    AttentionInputs in{};
    in.head_dim = q.dim(-1);
    in.q = elements(q, in.head_dim);
    in.k = elements(k, in.head_dim);
    in.v = elements(v, in.head_dim);
    in.q_rows = q.dim(0);
    in.heads = q.dim(1);
    in.kv_heads = k.dim(-2);
    in.group = in.heads / in.kv_heads;
    in.scale = scale;
    return in;
}

void attention_forward(Stream& stream, const Tensor& q, const Tensor& k, const Tensor& v,
                       const std::vector<AttentionSegment>& segments, float scale, Tensor out, Tensor lse,
                       ForwardWrites writes) {
    Work work(stream, "attention_forward");
    AttentionInputs in = attention_inputs(q, k, v, scale);
    ForwardOut to{elements(out, in.head_dim), writes.merge, {}};
    if (writes.rounded.defined()) to.rounded = elements(writes.rounded, in.head_dim);
    if (!writes.merge) clear_uncovered(work, in, segments, to, lse.data<float>());
    if (!by_tensor_cores(in, segments, to)) return forward_fp32(work, in, segments, to, lse.data<float>());
    if (on_hopper(stream) && fits_boxes(in, k.dim(0)))
        return forward_wgmma(work, in, segments, k.dim(0), to, lse.data<float>());
    forward_mma<PackedKeys>(work, in, segments, to, lse.data<float>());
}

}  // namespace tandem::ops::TANDEM_KERNELS
