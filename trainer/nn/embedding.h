// Token ids to rows of the table, of which this rank has a part: zeros for the ids of others.
#pragma once

#include "trainer/nn/compute.h"
#include "trainer/nn/parameter.h"
#include "trainer/tensor_parallel/cut_vocabulary.h"

namespace tandem::trainer {

class Embedding {
  public:
    Embedding(Parameter& table, CutVocabulary vocabulary)  // [this rank's part, hidden]
        : table_(&table), vocabulary_(vocabulary) {}

    Tensor forward(const Compute& compute, std::span<const std::int32_t> ids) const;  // terms [ids, hidden]
    void backward(const Compute& compute, const Tensor& dy, std::span<const std::int32_t> ids) const;

  private:
    Parameter* table_;
    CutVocabulary vocabulary_;
};

}  // namespace tandem::trainer
