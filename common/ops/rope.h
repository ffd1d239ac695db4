// Rotary position embedding, rotate-half form (Hugging Face's): pairs are (i, i + head_dim / 2),
// angle = position * inverse_frequency[i], computed in fp32.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "common/device/stream.h"
#include "common/ops/backends.h"
#include "common/tensor/tensor.h"

namespace tandem::ops {

// The frequencies of a model, and the cosines and sines of the positions met so far. Copies share both: a
// model makes one and hands copies to its layers. Thread-safe.
class RopeTable {
  public:
    RopeTable() = default;  // empty: rope refuses it
    // inverse_frequencies [head_dim / 2]; attention_factor multiplies cosines and sines, as YaRN wants.
    explicit RopeTable(std::vector<float> inverse_frequencies, float attention_factor = 1.0f);

    std::int64_t head_dim() const;

    struct Rows;
    // Rows of positions [0, positions), or as many of them as a table may have.
    std::shared_ptr<const Rows> rows(std::int64_t positions) const;

  private:
    struct State;
    std::shared_ptr<State> state_;
};

// x [tokens, heads, head_dim] in place, float32 or bfloat16; positions [tokens].
void rope(Stream& stream, Tensor x, std::span<const std::int32_t> positions, const RopeTable& table);
// The same with positions (int32) in a tensor on the stream's device, read when the stream gets there; all
// below `limit`. A recorded graph reads table.rows(limit): they must live as long as the graph.
void rope(Stream& stream, Tensor x, const Tensor& positions, std::int64_t limit, const RopeTable& table);
// The transposed rotation, in place.
void rope_backward(Stream& stream, Tensor dx, std::span<const std::int32_t> positions,
                   const RopeTable& table);

TANDEM_BACKENDS(rope, Tensor, std::span<const std::int32_t>)
TANDEM_BACKENDS(rope, Tensor, const Tensor&)
TANDEM_BACKENDS(rope_backward)

}  // namespace tandem::ops
