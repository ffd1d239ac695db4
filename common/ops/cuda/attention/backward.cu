// The backward of attention: which kernels.
#include "common/ops/attention.h"
#include "common/ops/cuda/attention/backward_fp32.cuh"

namespace tandem::ops::TANDEM_KERNELS {

void attention_backward(Stream& stream, const Tensor& dout, const Tensor& q, const Tensor& k, const Tensor& v,
                        const Tensor& lse, const Tensor& delta, const std::vector<AttentionSegment>& segments,
                        float scale, Tensor dq, Tensor dk, Tensor dv) {
    Work work(stream, "attention_backward");
    AttentionInputs in = attention_inputs(q, k, v, scale);
    const Gradients g{elements(dout, in.head_dim),
                      lse.data<float>(),
                      delta.data<float>(),
                      dq.data<float>(),
                      dk.data<float>(),
                      dv.data<float>()};
    with_head_dim("attention_backward", in.head_dim, [&]<int kDim>() {
        Tiling queries;
        for (const auto& list : without_shared_keys(segments)) {
            Tiling keys;
            for (const AttentionSegment& segment : list) {
                keys.add(segment, segment.k_len, kBackwardTile<kDim>);
                queries.add(segment, segment.q_len, kBackwardTile<kDim>);
            }
            keys.upload(work, in);
            work.launch(key_fp32_kernel<kDim>, keys.tiles() * in.kv_heads, kTileThreads,
                        backward_fp32_bytes<kDim>(), in, g);
        }
        if (queries.tiles() == 0) return;
        queries.upload(work, in);
        work.launch(query_fp32_kernel<kDim>, queries.tiles() * in.heads, kTileThreads,
                    backward_fp32_bytes<kDim>(), in, g);
    });
}

}  // namespace tandem::ops::TANDEM_KERNELS
