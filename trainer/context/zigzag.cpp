// Ring flash attention over zigzag chunks. In step s a rank holds the keys and values of rank (r - s) mod P.
// It needs these of them, in each sequence, of which every rank has a first and a second chunk:
//
//   step     keys              queries             why the others are not needed
//   s == 0   both chunks       both, causal        (its own)
//   s <= r   the first chunk   both                the other rank's second chunk is behind all of them
//   s >  r   both chunks       the second chunk    its first chunk is before all of them
//
// The next step's keys travel while this step's block is computed. In the backward the gradients of keys and
// values travel behind the keys in float32, each rank adding its part, and reach their owner after P sends.
#include <array>

#include "common/ops/attention.h"
#include "common/ops/elementwise.h"
#include "trainer/context/attention_block.h"
#include "trainer/context/context_parallel.h"

namespace tandem::trainer {
namespace {

using KeyValue = std::array<Tensor, 2>;

class ZigzagContext final : public ContextParallel {
  public:
    ZigzagContext(const SequenceLayout& layout, comm::Communicator& cp, Stream& compute, Stream& transfer)
        : cp_(cp), compute_(compute), transfer_(transfer) {
        for (std::size_t i = 0; i + 1 < layout.cu_seqlens.size(); ++i) {
            const std::int64_t begin = layout.cu_seqlens[i] / cp.size();
            const std::int64_t length = layout.cu_seqlens[i + 1] / cp.size() - begin;
            const std::int64_t half = length / 2;
            causal_.push_back({begin, length, begin, length, true});
            first_keys_.push_back({begin, length, begin, half, false});
            second_queries_.push_back({begin + half, half, begin, length, false});
        }
    }

    void forward(ContextSaved& saved, float scale) override {
        const Tensor out = empty_f32(compute_, saved.q);
        const bool rounds = saved.q.dtype() != DType::float32;
        saved.out = rounds ? Tensor::empty(compute_, saved.q.shape(), saved.q.dtype(), "activations") : out;
        saved.lse = empty_row_scalars(saved.q);
        KeyRing ring(*this, saved);
        for (int step = 0; step < cp_.size(); ++step) {
            const KeyValue kv = ring.begin_step(step);
            // The last steps of the first chunks, and of the second ones.
            const bool last = step == cp_.rank() || step + 1 == cp_.size();
            ops::attention_forward(compute_, saved.q, kv[0], kv[1], segments(step), scale, out, saved.lse,
                                   {.merge = step > 0, .rounded = rounds && last ? saved.out : Tensor()});
            ring.end_step();
        }
    }

    ContextGrads backward(const Tensor& dout, const ContextSaved& saved, float scale) override {
        const Tensor delta = attention_delta_of(compute_, dout, saved.out);
        const Tensor dq = empty_f32(compute_, saved.q);
        KeyRing ring(*this, saved);
        // Two blocks: one is computed while the other is on its way.
        std::array<KeyValue, 2> blocks{gradient_buffers(saved), gradient_buffers(saved)};
        const KeyValue travelling = gradient_buffers(saved);
        Event sent;
        for (int step = 0; step < cp_.size(); ++step) {
            const KeyValue kv = ring.begin_step(step);
            const KeyValue& block = blocks[static_cast<std::size_t>(step % 2)];
            ops::attention_backward(compute_, dout, saved.q, kv[0], kv[1], saved.lse, delta, segments(step),
                                    scale, dq, block[0], block[1], {.dq = step == 0, .dk_dv = true});
            if (step > 0) {
                compute_.wait(sent);
                for (std::size_t i = 0; i < 2; ++i) ops::add(compute_, block[i], travelling[i]);
            }
            sent = exchange(block, travelling);
            ring.end_step();
        }
        compute_.wait(sent);
        return {dq, travelling[0], travelling[1]};
    }

    MemoryPool& memory() override { return cp_.memory(compute_.device()); }

  private:
    // The keys and values of one rank after the other: two buffers that take turns.
    class KeyRing {
      public:
        KeyRing(ZigzagContext& context, const ContextSaved& saved)
            : context_(context), held_{saved.k, saved.v} {
            for (KeyValue& buffer : buffers_) {
                for (Tensor& half : buffer) {
                    half = Tensor::empty(saved.k.shape(), saved.k.dtype(), "activations", context.memory());
                }
            }
        }
        // Starts to pass the held keys on, and returns them for this step's block.
        KeyValue begin_step(int step) {
            last_ = step + 1 == context_.cp_.size();
            if (!last_) {
                next_ = buffers_[static_cast<std::size_t>(step % 2)];
                moved_ = context_.exchange(held_, next_);
            }
            return held_;
        }
        void end_step() {
            if (last_) return;
            context_.compute_.wait(moved_);
            held_ = next_;
        }

      private:
        ZigzagContext& context_;
        KeyValue held_;
        KeyValue next_;
        std::array<KeyValue, 2> buffers_;
        Event moved_;
        bool last_ = false;
    };

    const std::vector<ops::AttentionSegment>& segments(int step) const {
        if (step == 0) return causal_;
        return step <= cp_.rank() ? first_keys_ : second_queries_;
    }

    KeyValue gradient_buffers(const ContextSaved& saved) {
        return {Tensor::empty(saved.k.shape(), DType::float32, "activations", memory()),
                Tensor::empty(saved.v.shape(), DType::float32, "activations", memory())};
    }

    // Sends to the next rank, receives from the one before; ordered after what compute has done so far.
    Event exchange(const KeyValue& out, const KeyValue& in) {
        using Kind = comm::P2POp::Kind;
        const int next = (cp_.rank() + 1) % cp_.size();
        const int previous = (cp_.rank() + cp_.size() - 1) % cp_.size();
        const std::array operations{
            comm::P2POp{Kind::send, next, out[0].span()}, comm::P2POp{Kind::send, next, out[1].span()},
            comm::P2POp{Kind::recv, previous, in[0].span()}, comm::P2POp{Kind::recv, previous, in[1].span()}};
        transfer_.wait(compute_.record());
        return cp_.p2p(operations, transfer_).event();
    }

    comm::Communicator& cp_;
    Stream& compute_;
    Stream& transfer_;
    std::vector<ops::AttentionSegment> causal_;
    std::vector<ops::AttentionSegment> first_keys_;
    std::vector<ops::AttentionSegment> second_queries_;
};

}  // namespace

std::unique_ptr<ContextParallel> make_zigzag_context(const SequenceLayout& layout, comm::Communicator& cp,
                                                     Stream& compute, Stream& transfer) {
    require(layout.zigzag && layout.cp == cp.size(), "the zigzag context takes zigzag chunks over {} ranks",
            cp.size());
    return std::make_unique<ZigzagContext>(layout, cp, compute, transfer);
}

}  // namespace tandem::trainer
