// Token ids to rows of the table.
#pragma once

#include "trainer/nn/compute.h"
#include "trainer/nn/parameter.h"

namespace tandem::trainer {

class Embedding {
  public:
    explicit Embedding(Parameter& table) : table_(&table) {}  // [vocab, hidden]

    Tensor forward(const Compute& compute, std::span<const std::int32_t> ids) const;  // [ids, hidden]
    void backward(const Compute& compute, const Tensor& dy, std::span<const std::int32_t> ids) const;

  private:
    Parameter* table_;
};

}  // namespace tandem::trainer
