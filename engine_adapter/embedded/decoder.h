// The forward pass of the engine, layer by layer the same as the trainer's (common/model/layer_sequence.h), so that log-probs
// agree bit for bit in fp32; at the end rms_norm, head, float32 logits.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "common/device/stream.h"
#include "common/model/model_config.h"
#include "common/ops/rope.h"
#include "engine_adapter/embedded/decode_steps.h"
#include "engine_adapter/embedded/kv_cache.h"
#include "engine_adapter/embedded/packed_weights.h"
#include "engine_adapter/embedded/weights.h"

namespace tandem::engine {

// A sequence, or a piece of it: tokens from position `begin` on. What lies before was prefilled into the same
// pages, by these weights; `pages` has room up to the last token.
struct PrefillSequence {
    std::vector<std::int32_t> tokens;
    std::vector<std::int32_t> pages;
    std::int64_t begin = 0;
    bool ends = true;  // whether logits are wanted: there is no later piece
};

// Queues its work on the stream, on whose device weights and cache are (inline on the CPU: it blocks); not
// thread-safe. Reads the weights and owns the cache's contents until the stream is past a call.
class Decoder {
  public:
    // `stream` is borrowed: a compute stream. graphs: whether decode steps on a GPU are recorded and
    // replayed. sum_parts: o and down are summed in as many parts, one after the other, as a trainer's ranks of tp sum
    // theirs; then nothing is recorded.
    Decoder(const model::ModelConfig& config, const ModelWeights& weights, KvCache& cache, Stream& stream,
            bool pack_weights = true, bool graphs = true, int sum_parts = 1);

    Stream& stream() { return stream_; }
    const model::ModelConfig& config() const { return config_; }

    // Logits after the last token of each sequence that ends: [sequences, vocab] float32, undefined for none.
    // Fills the pages. However a sequence is cut, on the CPU logits and pages are those of the whole, bit for
    // bit; on a GPU it cannot be cut (throws InvalidArgument).
    Tensor prefill(const std::vector<PrefillSequence>& sequences);
    bool cuts_sequences() const { return stream_.device().type == DeviceType::cpu; }
    // [batch, vocab] float32; on a GPU good until the next call.
    Tensor decode(const DecodeBatch& batch);
    // Release the packed copies of the weights, and the graphs with their memory, until the next call; not
    // while a call runs.
    void release_packed() { packed_.release(); }
    double packed_ms() const { return packed_.packed_ms(); }
    void release_graphs() { steps_.release(); }
    GraphCounts graphs() const { return steps_.counts(); }

  private:
    // A pass over tokens: how they are embedded, which positions they have, what they attend to.
    struct Pass {
        std::int64_t rows;                   // tokens
        std::function<void(Tensor)> embed;   // x [rows, hidden]
        std::function<void(Tensor)> rotate;  // q or k [rows, heads, head_dim]
        // out [rows, heads, head_dim] from q, k, v as `rotate` left them.
        std::function<void(std::size_t layer, const Tensor& q, const Tensor& k, const Tensor& v, Tensor out)>
            attend;
    };
    class Steps;
    // Hidden states before the final norm: [rows, hidden].
    Tensor layers(const Pass& pass);
    void logits(const Tensor& x, Tensor result);
    Tensor logits(const Tensor& x);
    Tensor decode_here(const DecodeBatch& batch);
    Tensor decode_on_device(const DecodeBatch& batch);
    Tensor empty(Shape shape, DType dtype);

    const model::ModelConfig& config_;
    const ModelWeights& weights_;
    PackedWeights packed_;
    KvCache& cache_;
    Stream& stream_;
    ops::RopeTable rope_;
    float attention_scale_;
    DecodeSteps steps_;
};

}  // namespace tandem::engine
