// A weight with a copy of it in the tiles that matmul kernels read. Without the copy a weight, stored as
// [out, in], is packed in every call, which takes most of the time for a few rows. The results are the same
// bit for bit.
#pragma once

#include <span>
#include <string_view>

#include "common/device/memory.h"
#include "common/device/stream.h"
#include "common/tensor/tensor.h"

namespace tandem::ops {

class PackedWeight {
  public:
    PackedWeight() = default;

    // Reads weight [out, in] now, blocking; later writes to it need another pack, which uses the same memory.
    // On a machine without a better layout nothing is copied, and matmuls read `weight` itself.
    void pack(const Tensor& weight, std::string_view tag);
    // The same into memory of the caller's, of at least packed_bytes(weight) bytes, which outlives the copy.
    void pack_into(const Tensor& weight, Span memory);
    static std::size_t packed_bytes(const Tensor& weight);  // 0: no better layout
    // Drops the copy: matmuls read `weight` itself.
    void point(const Tensor& weight);

    const Tensor& weight() const { return weight_; }
    Span packed() const { return packed_; }  // empty: matmuls read weight()

  private:
    Tensor weight_;
    Span packed_;
    Buffer own_;  // behind packed_, unless that is the caller's
};

// y[tokens, out] = x[tokens, in] · weight^T [+ bias], as ops::linear of weight.weight(). The copy must live
// until the stream is past it.
void linear(Stream& stream, const Tensor& x, const PackedWeight& weight, const Tensor& bias, Tensor y);

// Several of one x, each with the result of a call of its own; on the CPU its threads share them all at once.
struct Projection {
    const PackedWeight* weight;  // like its copy, it must live until the stream is past the call
    Tensor bias;                 // undefined: none
    Tensor y;                    // apart from the others'
};
void linear(Stream& stream, const Tensor& x, std::span<const Projection> projections);

}  // namespace tandem::ops
