#include "trainer/nn/embedding.h"

#include "common/ops/embedding.h"

namespace tandem::trainer {
namespace {

constexpr std::int32_t kZeros = -1;

}  // namespace

Tensor Embedding::forward(const Compute& compute, std::span<const std::int32_t> ids) const {
    Tensor y =
        empty_terms(compute, {static_cast<std::int64_t>(ids.size()), table_->value_shape[1]}, compute.dtype);
    ops::embedding(compute.stream, table_->value, vocabulary_.here(ids, kZeros), y);
    return y;
}

void Embedding::backward(const Compute& compute, const Tensor& dy, std::span<const std::int32_t> ids) const {
    ops::embedding_backward(compute.stream, dy, vocabulary_.here(ids, kZeros),
                            table_->grad.filled(compute.stream));
}

}  // namespace tandem::trainer
