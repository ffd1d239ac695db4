#include "engine_adapter/embedded/packed_weights.h"

#include "common/stopwatch.h"

namespace tandem::engine {
namespace {

constexpr const char* kPackedTag = "engine.packed";

}  // namespace

PackedWeights::PackedWeights(const ModelWeights& weights, bool pack)
    : weights_(weights), pack_(pack), layers_(weights.layers()) {}

void PackedWeights::refresh() {
    if (contents_ == weights_.contents()) return;
    const Stopwatch stopwatch;
    const auto take = [&](ops::PackedWeight& to, const Tensor& from) {
        pack_ ? to.pack(from, kPackedTag) : to.point(from);
    };
    for (std::size_t i = 0; i < layers_.size(); ++i) {
        const LayerWeights& from = weights_.layer(i);
        PackedLayer& to = layers_[i];
        for (std::size_t role = 0; role < model::kRoles; ++role) {
            const Tensor& weight = from[static_cast<model::Role>(role)];
            if (weight.ndim() == 2) take(to[static_cast<model::Role>(role)], weight);
        }
    }
    take(head_, weights_.head());
    contents_ = weights_.contents();
    packed_ms_ = stopwatch.ms();
}

void PackedWeights::release() {
    for (PackedLayer& layer : layers_) layer = PackedLayer();
    head_ = ops::PackedWeight();
    contents_ = 0;
}

}  // namespace tandem::engine
