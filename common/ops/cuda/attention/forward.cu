// The forward of attention: which kernel, and the rows of no segment.
#include "common/ops/attention.h"
#include "common/ops/cuda/attention/forward_fp32.cuh"
#include "common/ops/cuda/attention/forward_mma.cuh"

namespace tandem::ops::TANDEM_KERNELS {
namespace {

// Rows [begin, begin + count) of no segment.
__global__ void __launch_bounds__(kTileThreads)
    uncovered_kernel(std::int64_t begin, std::int64_t count, std::int64_t heads, std::int64_t head_dim,
                     std::int64_t q_rows, Elements out, float* lse) {
    const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
    const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    const std::int64_t row = heads * head_dim;
    for (std::int64_t at = first; at < count * row; at += step) store1(out, begin * row + at, 0.0f);
    for (std::int64_t at = first; at < count * heads; at += step)
        lse[at / count * q_rows + begin + at % count] = -INFINITY;
}

void clear_uncovered(Work& work, const AttentionInputs& in, std::vector<AttentionSegment> segments,
                     const Tensor& out, const Tensor& lse) {
    std::sort(segments.begin(), segments.end(),
              [](const auto& a, const auto& b) { return a.q_begin < b.q_begin; });
    segments.push_back({in.q_rows, 0, 0, 0, true});
    std::int64_t covered = 0;
    for (const AttentionSegment& segment : segments) {
        const std::int64_t count = segment.q_begin - covered;
        if (count > 0) {
            work.launch(uncovered_kernel,
                        std::min(ceil_div(count * in.heads * in.head_dim, kTileThreads), kGridBlocks),
                        kTileThreads, 0, covered, count, in.heads, in.head_dim, in.q_rows,
                        elements(out, in.head_dim), lse.data<float>());
        }
        covered = std::max(covered, segment.q_begin + segment.q_len);
    }
}

std::int64_t longest(const std::vector<AttentionSegment>& segments) {
    std::int64_t most = 0;
    for (const AttentionSegment& segment : segments) most = std::max({most, segment.q_len, segment.k_len});
    return most;
}

Tiling query_tiles(Work& work, AttentionInputs& in, const std::vector<AttentionSegment>& segments,
                   std::int64_t rows) {
    Tiling tiling;
    for (const AttentionSegment& segment : segments) {
        if (segment.q_len > 0) tiling.add(segment, segment.q_len, rows);
    }
    if (tiling.tiles() > 0) tiling.upload(work, in);
    return tiling;
}

// Positions of a segment are counted in 32 bits there, and a scale of 0 would make NaN of the scores of keys
// that are not seen.
bool by_tensor_cores(const AttentionInputs& in, const std::vector<AttentionSegment>& segments,
                     const Elements& out) {
    return in.q.is_bfloat16 && in.k.is_bfloat16 && in.v.is_bfloat16 && in.q.vector && in.k.vector &&
           in.v.vector && out.vector && in.head_dim <= 256 && in.scale > 0.0f &&
           longest(segments) < kDividends / 2;
}

void forward_mma(Work& work, AttentionInputs in, const std::vector<AttentionSegment>& segments,
                 const Tensor& out, const Tensor& lse) {
    with_mma_head_dim(in.head_dim, [&]<int kDim>() {
        using Shape = ForwardShape<kDim>;
        const Tiling tiling = query_tiles(work, in, segments, Shape::kRows);
        const std::int64_t blocks = tiling.tiles() * in.heads;
        const std::int64_t parked = longest(segments) > kPart ? blocks : 0;
        work.launch(forward_mma_kernel<Shape>, blocks, Shape::kThreads, Shape::kBytes,
                    ForwardWork{in, tiling.tiles(), in.scale * kLog2E, elements(out, in.head_dim),
                                lse.data<float>(), parking(work, parked, Shape::kPlaceQuads)});
    });
}

void forward_fp32(Work& work, AttentionInputs in, const std::vector<AttentionSegment>& segments,
                  const Tensor& out, const Tensor& lse) {
    const Tiling tiling = query_tiles(work, in, segments, kForwardTile);
    with_head_dim("attention_forward", in.head_dim, [&]<int kDim>() {
        work.launch(forward_fp32_kernel<kDim>, tiling.tiles() * in.heads, kTileThreads,
                    forward_fp32_bytes<kDim>(), in, tiling.tiles(), elements(out, in.head_dim),
                    lse.data<float>());
    });
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
                       const std::vector<AttentionSegment>& segments, float scale, Tensor out, Tensor lse) {
    Work work(stream, "attention_forward");
    AttentionInputs in = attention_inputs(q, k, v, scale);
    clear_uncovered(work, in, segments, out, lse);
    if (by_tensor_cores(in, segments, elements(out, in.head_dim))) {
        forward_mma(work, in, segments, out, lse);
    } else {
        forward_fp32(work, in, segments, out, lse);
    }
}

}  // namespace tandem::ops::TANDEM_KERNELS
