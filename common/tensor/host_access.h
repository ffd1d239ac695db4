// Blocking copies between host code and tensors that may be a GPU's: for checkpoints, initial weights and
// what else touches every byte once. What is on the CPU is not copied.
#pragma once

#include <memory>

#include "common/tensor/tensor.h"

namespace tandem {

// Nothing may be running on the tensors. Makes its stream when it first meets a GPU; one GPU an object.
class HostAccess {
  public:
    // The tensor itself where the host can read it, else a copy of its own.
    Tensor read(const Tensor& tensor);
    // `from` is on the CPU, of the same dtype and as many elements.
    void write(const Tensor& from, const Tensor& to);

  private:
    void copy_on(Device device, ConstSpan from, Span to);
    std::unique_ptr<Stream> stream_;
};

}  // namespace tandem
