#include "engine_adapter/embedded/packed_weights.h"

namespace tandem::engine {
namespace {

constexpr const char* kPackedTag = "engine.packed";

}  // namespace

PackedWeights::PackedWeights(const ModelWeights& weights, bool pack)
    : weights_(weights), pack_(pack), layers_(weights.layers()) {}

void PackedWeights::refresh() {
    if (contents_ == weights_.contents()) return;
    const auto take = [&](ops::PackedWeight& to, const Tensor& from) {
        pack_ ? to.pack(from, kPackedTag) : to.point(from);
    };
    for (std::size_t i = 0; i < layers_.size(); ++i) {
        const LayerWeights& from = weights_.layer(i);
        PackedLayer& to = layers_[i];
        take(to.q_proj, from.q_proj);
        take(to.k_proj, from.k_proj);
        take(to.v_proj, from.v_proj);
        take(to.o_proj, from.o_proj);
        take(to.gate_proj, from.gate_proj);
        take(to.up_proj, from.up_proj);
        take(to.down_proj, from.down_proj);
    }
    take(head_, weights_.head());
    contents_ = weights_.contents();
}

void PackedWeights::release() {
    for (PackedLayer& layer : layers_) layer = PackedLayer();
    head_ = ops::PackedWeight();
    contents_ = 0;
}

}  // namespace tandem::engine
