// Rows of a table.
#pragma once

#include <cstdint>
#include <span>

#include "common/device/stream.h"
#include "common/ops/backends.h"
#include "common/tensor/tensor.h"

namespace tandem::ops {

// y[i] = table[ids[i]], zeros for id -1: the row is in another rank's part of the table. table [vocab, dim],
// which may have no rows, and y [tokens, dim] of one dtype. Any other id out of range throws InvalidArgument.
void embedding(Stream& stream, const Tensor& table, std::span<const std::int32_t> ids, Tensor y);
// The same with ids (int32) in a tensor on the stream's device, which is read when the stream gets there, as
// a recorded graph needs it. A GPU does not check them.
void embedding(Stream& stream, const Tensor& table, const Tensor& ids, Tensor y);
// dtable[ids[i]] += dy[i], in order of i, but for id -1; dtable float32.
void embedding_backward(Stream& stream, const Tensor& dy, std::span<const std::int32_t> ids, Tensor dtable);

TANDEM_BACKENDS(embedding, const Tensor&, std::span<const std::int32_t>)
TANDEM_BACKENDS(embedding, const Tensor&, const Tensor&)
TANDEM_BACKENDS(embedding_backward)

}  // namespace tandem::ops
