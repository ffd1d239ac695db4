// A gradient that knows whether it holds anything yet: the first write replaces what lies in its memory and later ones add,
// so that nobody zeroes what is written anyway. Copies share memory and knowledge, as a Tensor's copies share memory.
#pragma once

#include <memory>
#include <utility>

#include "common/ops/elementwise.h"
#include "common/tensor/tensor.h"

namespace tandem::trainer {

class Gradient {
  public:
    Gradient() = default;
    explicit Gradient(Tensor memory) : memory_(std::move(memory)), holds_(std::make_shared<bool>(false)) {}
    // The same gradient, seen as another tensor of its memory.
    Gradient seen_as(Tensor view) const {
        Gradient other = *this;
        other.memory_ = std::move(view);
        return other;
    }

    const Tensor& memory() const { return memory_; }  // float32; undefined contents until something is held
    // Whether an op is to add, rather than to write all of it; something is held from here on.
    bool adds() const { return std::exchange(*holds_, true); }
    // For ops that add only, and for readers: zeros where nothing was held.
    const Tensor& filled(Stream& stream) const {
        if (!adds()) ops::fill_zero(stream, memory_);
        return memory_;
    }
    void discard() const { *holds_ = false; }

  private:
    Tensor memory_;
    std::shared_ptr<bool> holds_;
};

}  // namespace tandem::trainer
