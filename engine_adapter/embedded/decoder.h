// The forward pass of the engine, op by op the same as the trainer's, so that log-probs agree bit for bit in
// fp32:
//   h = rms_norm(x); q, k, v = linear(h) [+ bias]; [q, k = rms_norm per head]; rope; x += linear(attention)
//   h = rms_norm(x); x += linear(swiglu(gate, up), down_proj);  at the end rms_norm, head, float32 logits
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "common/device/stream.h"
#include "common/model/model_config.h"
#include "common/ops/rope.h"
#include "engine_adapter/embedded/kv_cache.h"
#include "engine_adapter/embedded/packed_weights.h"
#include "engine_adapter/embedded/weights.h"

namespace tandem::engine {

// A sequence from its first token on; `pages` holds room for all of it.
struct PrefillSequence {
    std::vector<std::int32_t> tokens;
    std::vector<std::int32_t> pages;
};

// One step of running sequences: tokens[b] stands at position lengths[b] - 1 of sequence b.
struct DecodeBatch {
    std::vector<std::int32_t> tokens;
    std::vector<std::int32_t> lengths;  // with the new token
    std::vector<std::vector<std::int32_t>> block_tables;
};

// Queues its work on the stream, whose device weights and cache are on (inline on the CPU: it blocks); not
// thread-safe. Reads the weights and owns the cache's contents until the stream is past a call.
class Decoder {
  public:
    // `stream` is borrowed: a compute stream.
    Decoder(const model::ModelConfig& config, const ModelWeights& weights, KvCache& cache, Stream& stream,
            bool pack_weights = true);

    Stream& stream() { return stream_; }

    // Logits after the last token of each sequence: [sequences, vocab] float32. Fills the pages.
    Tensor prefill(const std::vector<PrefillSequence>& sequences);
    Tensor decode(const DecodeBatch& batch);  // [batch, vocab] float32
    // Lets go of the copies that it made of the weights, until the next call; not while a call runs.
    void release_packed() { packed_.release(); }

  private:
    // out [tokens, heads, head_dim] from q, k, v, which are in their final form.
    using Attend =
        std::function<void(std::size_t layer, const Tensor& q, const Tensor& k, const Tensor& v, Tensor out)>;
    // Hidden states before the final norm: [tokens, hidden].
    Tensor layers(std::span<const std::int32_t> tokens, std::span<const std::int32_t> positions,
                  const Attend& attend);
    Tensor logits(const Tensor& x);
    Tensor empty(Shape shape, DType dtype);

    const model::ModelConfig& config_;
    const ModelWeights& weights_;
    PackedWeights packed_;
    KvCache& cache_;
    Stream& stream_;
    ops::RopeTable rope_;
    float attention_scale_;
};

}  // namespace tandem::engine
