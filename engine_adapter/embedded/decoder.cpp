#include "engine_adapter/embedded/decoder.h"

#include <cmath>

#include "common/ops/attention.h"
#include "common/ops/elementwise.h"
#include "common/ops/embedding.h"
#include "common/ops/matmul.h"
#include "common/ops/rms_norm.h"
#include "common/ops/swiglu.h"

namespace tandem::engine {

using model::Role;

namespace {

constexpr const char* kTag = "engine.activations";

}  // namespace

Decoder::Decoder(const model::ModelConfig& config, const ModelWeights& weights, KvCache& cache,
                 Stream& stream, bool pack_weights, bool graphs)
    : config_(config),
      weights_(weights),
      packed_(weights, pack_weights),
      cache_(cache),
      stream_(stream),
      rope_(config.rope_frequencies().inverse, config.rope_frequencies().attention_factor),
      attention_scale_(1.0f / std::sqrt(static_cast<float>(config.head_dim))),
      steps_(stream_, weights, cache, rope_, config.vocab_size, graphs) {}

Tensor Decoder::empty(Shape shape, DType dtype) {
    return Tensor::empty(stream_, std::move(shape), dtype, kTag);
}

Tensor Decoder::layers(const Pass& pass) {
    const std::int64_t rows = pass.rows;
    const std::int64_t hidden = config_.hidden_size;
    const std::int64_t heads = config_.num_attention_heads;
    const std::int64_t kv_heads = config_.num_key_value_heads;
    const std::int64_t head_dim = config_.head_dim;
    const DType dtype = weights_.dtype();
    const auto make = [&](Shape shape) { return empty(std::move(shape), dtype); };

    Tensor x = make({rows, hidden});
    pass.embed(x);
    const Tensor h = make({rows, hidden});
    const Tensor update = make({rows, hidden});
    const Tensor q = make({rows, heads, head_dim});
    const Tensor k = make({rows, kv_heads, head_dim});
    const Tensor v = make({rows, kv_heads, head_dim});
    const Tensor q_normed = config_.qk_norm ? make(q.shape()) : q;
    const Tensor k_normed = config_.qk_norm ? make(k.shape()) : k;
    const Tensor attended = make({rows, heads, head_dim});
    const Tensor gate = make({rows, config_.intermediate_size});
    const Tensor up = make({rows, config_.intermediate_size});
    const Tensor activated = make({rows, config_.intermediate_size});
    const auto flat = [&](const Tensor& tensor) { return tensor.reshape({rows, tensor.numel() / rows}); };

    for (std::size_t i = 0; i < weights_.layers(); ++i) {
        const LayerWeights& layer = weights_.layer(i);
        const PackedLayer& packed = packed_.layer(i);
        ops::rms_norm(stream_, x, layer[Role::input_norm], config_.rms_norm_eps, h);
        ops::linear(stream_, h, packed[Role::q], layer.bias(Role::q), flat(q));
        ops::linear(stream_, h, packed[Role::k], layer.bias(Role::k), flat(k));
        ops::linear(stream_, h, packed[Role::v], layer.bias(Role::v), flat(v));
        if (config_.qk_norm) {
            ops::rms_norm(stream_, q, layer[Role::q_norm], config_.rms_norm_eps, q_normed);
            ops::rms_norm(stream_, k, layer[Role::k_norm], config_.rms_norm_eps, k_normed);
        }
        pass.rotate(q_normed);
        pass.rotate(k_normed);
        pass.attend(i, q_normed, k_normed, v, attended);
        ops::linear(stream_, flat(attended), packed[Role::o], layer.bias(Role::o), update);
        ops::add(stream_, x, update);

        ops::rms_norm(stream_, x, layer[Role::post_norm], config_.rms_norm_eps, h);
        ops::linear(stream_, h, packed[Role::gate], layer.bias(Role::gate), gate);
        ops::linear(stream_, h, packed[Role::up], layer.bias(Role::up), up);
        ops::swiglu(stream_, gate, up, activated);
        ops::linear(stream_, activated, packed[Role::down], layer.bias(Role::down), update);
        ops::add(stream_, x, update);
    }
    return x;
}

void Decoder::logits(const Tensor& x, Tensor result) {
    const Tensor h = empty(x.shape(), x.dtype());
    ops::rms_norm(stream_, x, weights_.norm(), config_.rms_norm_eps, h);
    ops::linear(stream_, h, packed_.head(), {}, std::move(result));
}

Tensor Decoder::logits(const Tensor& x) {
    Tensor result = empty({x.dim(0), config_.vocab_size}, DType::float32);
    logits(x, result);
    return result;
}

Tensor Decoder::prefill(const std::vector<PrefillSequence>& sequences) {
    std::vector<std::int32_t> tokens, positions, starts = {0}, ends;
    std::vector<KvCache::Rows> rows_of;
    std::vector<ops::PagedSegment> pieces;
    bool whole = true;
    for (const PrefillSequence& sequence : sequences) {
        const auto count = static_cast<std::int64_t>(sequence.tokens.size());
        for (std::int64_t i = 0; i < count; ++i)
            positions.push_back(static_cast<std::int32_t>(sequence.begin + i));
        rows_of.push_back({&sequence.pages, sequence.begin, starts.back(), count});
        pieces.push_back({starts.back(), count, sequence.begin + count, sequence.pages});
        tokens.insert(tokens.end(), sequence.tokens.begin(), sequence.tokens.end());
        starts.push_back(static_cast<std::int32_t>(tokens.size()));
        if (sequence.ends) ends.push_back(starts.back() - 1);
        whole = whole && sequence.begin == 0;
    }
    const auto rows = static_cast<std::int64_t>(tokens.size());
    const auto segments = ops::packed_segments(starts);
    const Tensor lse = empty({config_.num_attention_heads, whole ? rows : 0}, DType::float32);
    packed_.refresh();
    const Tensor x = layers(
        {.rows = rows,
         .embed = [&](Tensor to) { ops::embedding(stream_, weights_.embedding(), tokens, std::move(to)); },
         .rotate = [&](Tensor of) { ops::rope(stream_, std::move(of), positions, rope_); },
         .attend =
             [&](std::size_t layer, const Tensor& q, const Tensor& k, const Tensor& v, Tensor out) {
                 cache_.write(stream_, layer, k, v, rows_of);
                 if (whole) {
                     ops::attention_forward(stream_, q, k, v, segments, attention_scale_, std::move(out),
                                            lse);
                 } else {
                     ops::paged_attention_prefill(stream_, q, cache_.k(layer), cache_.v(layer), pieces,
                                                  attention_scale_, std::move(out));
                 }
             }});
    if (ends.empty()) return {};
    const Tensor last = empty({static_cast<std::int64_t>(ends.size()), config_.hidden_size}, x.dtype());
    for (std::size_t s = 0; s < ends.size(); ++s)
        copy(stream_, x.rows(ends[s], 1), last.rows(static_cast<std::int64_t>(s), 1));
    return logits(last);
}

Tensor Decoder::decode(const DecodeBatch& batch) {
    packed_.refresh();
    return stream_.device().type == DeviceType::cpu ? decode_here(batch) : decode_on_device(batch);
}

Tensor Decoder::decode_here(const DecodeBatch& batch) {
    std::vector<std::int32_t> positions;
    for (const std::int32_t length : batch.lengths) positions.push_back(length - 1);
    std::vector<KvCache::Rows> rows_of;
    for (std::size_t b = 0; b < batch.tokens.size(); ++b)
        rows_of.push_back({&batch.block_tables[b], positions[b], static_cast<std::int64_t>(b), 1});
    return logits(layers(
        {.rows = static_cast<std::int64_t>(batch.tokens.size()),
         .embed =
             [&](Tensor to) { ops::embedding(stream_, weights_.embedding(), batch.tokens, std::move(to)); },
         .rotate = [&](Tensor of) { ops::rope(stream_, std::move(of), positions, rope_); },
         .attend =
             [&](std::size_t layer, const Tensor& q, const Tensor& k, const Tensor& v, Tensor out) {
                 cache_.write(stream_, layer, k, v, rows_of);
                 ops::paged_attention_decode(stream_, q, cache_.k(layer), cache_.v(layer), batch.block_tables,
                                             batch.lengths, attention_scale_, std::move(out));
             }}));
}

// The same ops with their tables on the device: perhaps recorded, perhaps replayed.
Tensor Decoder::decode_on_device(const DecodeBatch& batch) {
    return steps_.run(batch, [&](const StepTables& t, Tensor result) {
        const Tensor x = layers(
            {.rows = t.tokens.numel(),
             .embed =
                 [&](Tensor to) { ops::embedding(stream_, weights_.embedding(), t.tokens, std::move(to)); },
             .rotate = [&](Tensor of) { ops::rope(stream_, std::move(of), t.positions, t.limit, rope_); },
             .attend =
                 [&](std::size_t layer, const Tensor& q, const Tensor& k, const Tensor& v, Tensor out) {
                     const Tensor &k_cache = cache_.k(layer), &v_cache = cache_.v(layer);
                     ops::write_pages(stream_, k, v, t.pages, t.lengths, k_cache, v_cache);
                     ops::paged_attention_decode(stream_, q, k_cache, v_cache, t.pages, t.lengths,
                                                 attention_scale_, std::move(out));
                 }});
        logits(x, std::move(result));
    });
}

}  // namespace tandem::engine
