// Self-attention of a pack whose rows may be cut over the ranks of the cp axis: the one place where a rank's
// rows meet the rows of others. The attention module calls it with local rows and gets local rows back.
#pragma once

#include <memory>

#include "common/comm/communicator.h"
#include "common/device/stream.h"
#include "common/tensor/tensor.h"
#include "trainer/context/sequence_layout.h"

namespace tandem::trainer {

// Up to this size the gathered keys and values of a layer are kept for the backward: a gather of small
// messages costs more than their memory. Larger ones are gathered again.
constexpr std::size_t kKeepGatheredBytes = std::size_t{1} << 20;

// The tensors that the backward needs. q, k, v are set by the caller (after qk-norm and RoPE); the rest by
// forward.
struct ContextSaved {
    Tensor q;       // [rows, heads, head_dim]
    Tensor k;       // [rows, kv_heads, head_dim]; best from ContextParallel::memory()
    Tensor v;       // like k
    Tensor out;     // like q
    Tensor lse;     // [heads, rows] float32
    Tensor k_full;  // keys of the whole pack, where they were gathered and are small enough to keep
    Tensor v_full;
};

struct ContextGrads {
    Tensor dq;  // float32, shapes of q, k, v
    Tensor dk;
    Tensor dv;
};

// One pack's attention, used by every layer in turn. Blocking; collective over the cp axis.
class ContextParallel {
  public:
    virtual ~ContextParallel() = default;
    // Fills saved.out and saved.lse. out is in q's dtype.
    virtual void forward(ContextSaved& saved, float scale) = 0;
    virtual ContextGrads backward(const Tensor& dout, const ContextSaved& saved, float scale) = 0;
    // The pool in which peers read k and v in place.
    virtual MemoryPool& memory() = 0;
};

// No communication: the layout of one rank.
std::unique_ptr<ContextParallel> make_local_context(const SequenceLayout& layout, Stream& compute);
// Ring flash attention over zigzag chunks; KV travels on `transfer` while blocks are computed.
std::unique_ptr<ContextParallel> make_zigzag_context(const SequenceLayout& layout, comm::Communicator& cp,
                                                     Stream& compute, Stream& transfer);
// All ranks gather the keys and values of the pack: for many short sequences.
std::unique_ptr<ContextParallel> make_packed_context(const SequenceLayout& layout, comm::Communicator& cp,
                                                     Stream& compute);
// The one that fits the layout.
std::unique_ptr<ContextParallel> make_context(const SequenceLayout& layout, comm::Communicator& cp,
                                              Stream& compute, Stream& transfer);

}  // namespace tandem::trainer
