// Rows of a table.
#pragma once

#include <cstdint>
#include <span>

#include "common/device/stream.h"
#include "common/tensor/tensor.h"

namespace tandem::ops {

// y[i] = table[ids[i]]; table [vocab, dim] and y [tokens, dim] of one dtype. An id out of range throws
// InvalidArgument.
void embedding(Stream& stream, const Tensor& table, std::span<const std::int32_t> ids, Tensor y);
// dtable[ids[i]] += dy[i], in order of i; dtable float32.
void embedding_backward(Stream& stream, const Tensor& dy, std::span<const std::int32_t> ids, Tensor dtable);

}  // namespace tandem::ops
