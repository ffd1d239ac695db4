// Context parallelism for packs of many sequences: every rank gathers the pack's keys and values and attends
// with its own queries; the backward reduce-scatters the full-length key and value gradients (float32).
#include <array>

#include "common/ops/attention.h"
#include "trainer/context/attention_block.h"
#include "trainer/context/context_parallel.h"

namespace tandem::trainer {
namespace {

std::vector<ops::AttentionSegment> local_segments(const SequenceLayout& layout) {
    const LocalSeqlens local = prepare_cu_seqlens(layout.cu_seqlens, layout.rank, layout.cp);
    std::vector<ops::AttentionSegment> segments;
    for (std::size_t i = 0; i + 1 < local.cu_q.size(); ++i) {
        // Bottom-right causal: the last query of a piece is the last key that it may see.
        segments.push_back({local.cu_q[i], local.cu_q[i + 1] - local.cu_q[i], local.k_begin + local.cu_k[i],
                            local.cu_k[i + 1] - local.cu_k[i], true});
    }
    return segments;
}

class PackedContext final : public ContextParallel {
  public:
    PackedContext(const SequenceLayout& layout, comm::Communicator& cp, Stream& compute)
        : cp_(cp), compute_(compute), segments_(local_segments(layout)) {}

    void forward(ContextSaved& saved, float scale) override {
        const auto [k, v] = gather(saved);
        saved.out = Tensor::empty(compute_, saved.q.shape(), saved.q.dtype(), "activations");
        saved.lse = empty_row_scalars(saved.q);
        ops::attention_forward(compute_, saved.q, k, v, segments_, scale, saved.out, saved.lse);
        if (k.bytes() + v.bytes() <= kKeepGatheredBytes) {
            saved.k_full = k;
            saved.v_full = v;
        }
    }

    ContextGrads backward(const Tensor& dout, const ContextSaved& saved, float scale) override {
        const auto [k, v] = saved.k_full.defined() ? std::array{saved.k_full, saved.v_full} : gather(saved);
        const Tensor delta = attention_delta_of(compute_, dout, saved.out);
        const Tensor dk_full = Tensor::empty(k.shape(), DType::float32, "activations", memory());
        const Tensor dv_full = Tensor::empty(v.shape(), DType::float32, "activations", memory());
        ContextGrads grads{empty_f32(compute_, saved.q), empty_f32(compute_, saved.k),
                           empty_f32(compute_, saved.v)};
        ops::attention_backward(compute_, dout, saved.q, k, v, saved.lse, delta, segments_, scale, grads.dq,
                                dk_full, dv_full, {.dq = true, .dk_dv = true});
        const std::array items{
            comm::ReduceScatterItem{dk_full.span(), grads.dk.span(), DType::float32, false},
            comm::ReduceScatterItem{dv_full.span(), grads.dv.span(), DType::float32, false}};
        compute_.wait(cp_.reduce_scatter(items, comm::ReduceOp::sum, compute_).event());
        return grads;
    }

    MemoryPool& memory() override { return cp_.memory(compute_.device()); }

  private:
    std::array<Tensor, 2> gather(const ContextSaved& saved) {
        Shape shape = saved.k.shape();
        shape[0] *= cp_.size();
        std::array full{Tensor::empty(compute_, shape, saved.k.dtype(), "activations"),
                        Tensor::empty(compute_, shape, saved.v.dtype(), "activations")};
        const std::array items{comm::GatherItem{saved.k.span(), full[0].span()},
                               comm::GatherItem{saved.v.span(), full[1].span()}};
        compute_.wait(cp_.all_gather(items, compute_).event());
        return full;
    }

    comm::Communicator& cp_;
    Stream& compute_;
    std::vector<ops::AttentionSegment> segments_;
};

}  // namespace

std::unique_ptr<ContextParallel> make_packed_context(const SequenceLayout& layout, comm::Communicator& cp,
                                                     Stream& compute) {
    require(!layout.zigzag && layout.cp == cp.size(),
            "the packed context takes a contiguous cut over {} ranks", cp.size());
    return std::make_unique<PackedContext>(layout, cp, compute);
}

}  // namespace tandem::trainer
