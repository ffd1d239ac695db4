#include "engine_adapter/embedded/packed_weights.h"

namespace tandem::engine {
namespace {

constexpr const char* kTag = "engine.packed";

}  // namespace

PackedWeights::PackedWeights(const ModelWeights& weights) : weights_(weights), layers_(weights.layers()) {}

void PackedWeights::refresh() {
    if (contents_ == weights_.contents()) return;
    for (std::size_t i = 0; i < layers_.size(); ++i) {
        const LayerWeights& from = weights_.layer(i);
        PackedLayer& to = layers_[i];
        to.q_proj.pack(from.q_proj, kTag);
        to.k_proj.pack(from.k_proj, kTag);
        to.v_proj.pack(from.v_proj, kTag);
        to.o_proj.pack(from.o_proj, kTag);
        to.gate_proj.pack(from.gate_proj, kTag);
        to.up_proj.pack(from.up_proj, kTag);
        to.down_proj.pack(from.down_proj, kTag);
    }
    head_.pack(weights_.head(), kTag);
    contents_ = weights_.contents();
}

void PackedWeights::release() {
    for (PackedLayer& layer : layers_) layer = PackedLayer();
    head_ = ops::PackedWeight();
    contents_ = 0;
}

}  // namespace tandem::engine
