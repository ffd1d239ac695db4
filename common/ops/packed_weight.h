// A weight beside a copy of it that products read faster: kernels read a weight in tiles, and one as it is
// stored, [out, in], is packed anew for every product, which for a few rows is most of the time. The values
// are the same bit for bit.
#pragma once

#include <string_view>

#include "common/device/memory.h"
#include "common/device/stream.h"
#include "common/tensor/tensor.h"

namespace tandem::ops {

class PackedWeight {
  public:
    PackedWeight() = default;

    // Reads weight [out, in] now, blocking: what is written to it later is seen with the next pack, which
    // uses the same memory. Where the machine has no better layout nothing is copied, and products read
    // `weight` itself.
    void pack(const Tensor& weight, std::string_view tag);
    // No copy, whatever there was: products read `weight` itself.
    void point(const Tensor& weight);

    const Tensor& weight() const { return weight_; }
    Span packed() const { return packed_.span(); }  // empty: products read weight()

  private:
    Tensor weight_;
    Buffer packed_;
};

// y[tokens, out] = x[tokens, in] · weight^T [+ bias], as ops::linear of weight.weight(). The copy must live
// until the stream is past it.
void linear(Stream& stream, const Tensor& x, const PackedWeight& weight, const Tensor& bias, Tensor y);

}  // namespace tandem::ops
