#include "engine_adapter/embedded/decoder.h"

#include <array>
#include <cmath>
#include <span>
#include <utility>

#include "common/model/layer_sequence.h"
#include "common/ops/attention.h"
#include "common/ops/batched_copy.h"
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
                 Stream& stream, bool pack_weights, bool graphs, int sum_parts)
    : config_(config),
      weights_(weights),
      packed_(weights, stream, pack_weights, sum_parts),
      cache_(cache),
      stream_(stream),
      rope_(config.rope_frequencies().inverse, config.rope_frequencies().attention_factor),
      attention_scale_(1.0f / std::sqrt(static_cast<float>(config.head_dim))),
      steps_(stream_, weights, cache, rope_, config.vocab_size, graphs && sum_parts == 1) {}

Tensor Decoder::empty(Shape shape, DType dtype) {
    return Tensor::empty(stream_, std::move(shape), dtype, kTag);
}

// The steps of layer after layer over the same memory.
class Decoder::Steps {
  public:
    Steps(Decoder& decoder, const Pass& pass) : d_(decoder), pass_(pass) {
        const model::ModelConfig& c = d_.config_;
        const std::int64_t rows = pass.rows;
        const auto make = [&](Shape shape) { return d_.empty(std::move(shape), d_.weights_.dtype()); };
        h_ = make({rows, c.hidden_size});
        update_ = make({rows, c.hidden_size});
        q_ = make({rows, c.num_attention_heads, c.head_dim});
        k_ = make({rows, c.num_key_value_heads, c.head_dim});
        v_ = make(k_.shape());
        if (c.qk_norm) {
            q_normed_ = make(q_.shape());
            k_normed_ = make(k_.shape());
        }
        attended_ = make(q_.shape());
        gate_ = make({rows, c.intermediate_size});
        up_ = make(gate_.shape());
        activated_ = make(gate_.shape());
    }
    void begin(std::size_t layer) { layer_ = layer; }

    Tensor normed(Role role, const Tensor& x) {
        if (!waiting_.defined()) return norm(role, x, h_);
        ops::add_rms_norm(d_.stream_, x, std::exchange(waiting_, {}), d_.weights_.layer(layer_)[role],
                          d_.config_.rms_norm_eps, h_);
        return h_;
    }
    Tensor attention(const Tensor& h) { return model::run_attention(*this, h); }
    Tensor mlp(const Tensor& h) { return model::run_mlp(*this, h); }
    // Added when the next norm reads x.
    Tensor added(const Tensor& x, const Tensor& update) {
        waiting_ = update;
        return x;
    }
    // What the last layer gave, which no norm of a layer follows.
    void end(const Tensor& x) {
        if (waiting_.defined()) ops::add(d_.stream_, x, std::exchange(waiting_, {}));
    }
    Tensor projected(Role role, const Tensor& x) {
        const Tensor& y = target_of(role);
        const std::vector<WeightPart>& parts = d_.packed_.layer(layer_)[role];
        if (parts.size() > 1) return summed(parts, flat(x), d_.weights_.layer(layer_).bias(role), y);
        ops::linear(d_.stream_, flat(x), parts[0].weight, d_.weights_.layer(layer_).bias(role), flat(y));
        return y;
    }
    // Of roles whose weights are whole.
    template <std::size_t N>
    std::array<Tensor, N> projected(const std::array<Role, N>& roles, const Tensor& x) {
        std::array<Tensor, N> result;
        std::array<ops::Projection, N> projections;
        for (std::size_t i = 0; i < N; ++i) {
            result[i] = target_of(roles[i]);
            projections[i] = {&d_.packed_.layer(layer_)[roles[i]][0].weight,
                              d_.weights_.layer(layer_).bias(roles[i]), flat(result[i])};
        }
        ops::linear(d_.stream_, flat(x), projections);
        return result;
    }
    bool norms_heads() const { return d_.config_.qk_norm; }
    Tensor head_normed(Role role, const Tensor& heads) {
        return norm(role, heads, role == Role::q_norm ? q_normed_ : k_normed_);
    }
    void rotate(const Tensor& heads) { pass_.rotate(heads); }
    Tensor attended(const Tensor& q, const Tensor& k, const Tensor& v) {
        pass_.attend(layer_, q, k, v, attended_);
        return attended_;
    }
    Tensor activated(const Tensor& gate, const Tensor& up) {
        ops::swiglu(d_.stream_, gate, up, activated_);
        return activated_;
    }

  private:
    Tensor flat(const Tensor& tensor) const {
        return tensor.reshape({pass_.rows, tensor.numel() / pass_.rows});
    }
    // y = the first part's product with its bias, + the second's, and so on: added in fp32 and rounded once, as
    // ranks reduce (common/comm/reduce.h).
    Tensor summed(const std::vector<WeightPart>& parts, const Tensor& x, const Tensor& bias,
                  const Tensor& y) {
        const Tensor sum = d_.empty(flat(y).shape(), DType::float32);
        for (std::size_t i = 0; i < parts.size(); ++i) {
            const Tensor own = d_.empty({pass_.rows, parts[i].columns.dim(1)}, x.dtype());
            ops::CopyItem item = copy_of_columns(x, parts[i].first_column, own);
            item.non_temporal = false;
            ops::batched_copy(d_.stream_, std::span(&item, 1));
            const Tensor term = d_.empty(sum.shape(), y.dtype());
            ops::linear(d_.stream_, own, parts[i].weight, i == 0 ? bias : Tensor(), term);
            if (i == 0) {
                ops::cast(d_.stream_, term, sum);
            } else {
                ops::add(d_.stream_, sum, term);
            }
        }
        ops::cast(d_.stream_, sum, flat(y));
        return y;
    }
    Tensor norm(Role role, const Tensor& x, const Tensor& y) {
        ops::rms_norm(d_.stream_, x, d_.weights_.layer(layer_)[role], d_.config_.rms_norm_eps, y);
        return y;
    }
    const Tensor& target_of(Role role) const {
        switch (role) {
            case Role::q:
                return q_;
            case Role::k:
                return k_;
            case Role::v:
                return v_;
            case Role::gate:
                return gate_;
            case Role::up:
                return up_;
            default:
                return update_;  // of o and of down
        }
    }

    Decoder& d_;
    const Pass& pass_;
    std::size_t layer_ = 0;
    Tensor h_, update_, q_, k_, v_, q_normed_, k_normed_, attended_, gate_, up_, activated_;
    Tensor waiting_;  // what is to be added to x; undefined: nothing
};

Tensor Decoder::layers(const Pass& pass) {
    Tensor x = empty({pass.rows, config_.hidden_size}, weights_.dtype());
    pass.embed(x);
    Steps steps(*this, pass);
    for (std::size_t i = 0; i < weights_.layers(); ++i) {
        steps.begin(i);
        x = model::run_layer(steps, x);
    }
    steps.end(x);
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

// Attention rotates and writes the new keys, too: one region of threads for all three.
Tensor Decoder::decode_here(const DecodeBatch& batch) {
    return logits(layers(
        {.rows = static_cast<std::int64_t>(batch.tokens.size()),
         .embed =
             [&](Tensor to) { ops::embedding(stream_, weights_.embedding(), batch.tokens, std::move(to)); },
         .rotate = [](const Tensor&) {},
         .attend =
             [&](std::size_t layer, const Tensor& q, const Tensor& k, const Tensor& v, Tensor out) {
                 ops::rotate_and_decode(stream_, q, k, v, cache_.k(layer), cache_.v(layer),
                                        batch.block_tables, batch.lengths, rope_, attention_scale_,
                                        std::move(out));
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
