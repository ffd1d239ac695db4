// Attention of whole sequences on one rank; and the choice between the three forms.
#include "common/ops/attention.h"
#include "trainer/context/attention_block.h"
#include "trainer/context/context_parallel.h"

namespace tandem::trainer {
namespace {

class LocalContext final : public ContextParallel {
  public:
    LocalContext(const SequenceLayout& layout, Stream& compute)
        : compute_(compute), segments_(ops::packed_segments(layout.cu_seqlens)) {}

    void forward(ContextSaved& saved, float scale) override {
        saved.out = Tensor::empty(compute_, saved.q.shape(), saved.q.dtype(), "activations");
        saved.lse = empty_row_scalars(saved.q);
        ops::attention_forward(compute_, saved.q, saved.k, saved.v, segments_, scale, saved.out, saved.lse);
    }

    ContextGrads backward(const Tensor& dout, const ContextSaved& saved, float scale) override {
        const Tensor delta = attention_delta_of(compute_, dout, saved.out);
        ContextGrads grads{empty_f32(compute_, saved.q), empty_f32(compute_, saved.k),
                           empty_f32(compute_, saved.v)};
        ops::attention_backward(compute_, dout, saved.q, saved.k, saved.v, saved.lse, delta, segments_, scale,
                                grads.dq, grads.dk, grads.dv, {.dq = true, .dk_dv = true});
        return grads;
    }

    MemoryPool& memory() override { return device_pool(compute_.device()); }

  private:
    Stream& compute_;
    std::vector<ops::AttentionSegment> segments_;
};

}  // namespace

std::unique_ptr<ContextParallel> make_local_context(const SequenceLayout& layout, Stream& compute) {
    require(layout.cp == 1, "the local context takes one rank, not {}", layout.cp);
    return std::make_unique<LocalContext>(layout, compute);
}

std::unique_ptr<ContextParallel> make_context(const SequenceLayout& layout, comm::Communicator& cp,
                                              Stream& compute, Stream& transfer) {
    if (layout.cp == 1) return make_local_context(layout, compute);
    if (layout.zigzag) return make_zigzag_context(layout, cp, compute, transfer);
    return make_packed_context(layout, cp, compute);
}

}  // namespace tandem::trainer
