#include "trainer/nn/embedding.h"

#include "common/ops/embedding.h"

namespace tandem::trainer {

Tensor Embedding::forward(const Compute& compute, std::span<const std::int32_t> ids) const {
    Tensor y =
        empty_activation(compute, {static_cast<std::int64_t>(ids.size()), table_->shape[1]}, compute.dtype);
    ops::embedding(compute.stream, table_->value, ids, y);
    return y;
}

void Embedding::backward(const Compute& compute, const Tensor& dy, std::span<const std::int32_t> ids) const {
    ops::embedding_backward(compute.stream, dy, ids, table_->grad);
}

}  // namespace tandem::trainer
