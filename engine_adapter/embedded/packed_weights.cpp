#include "engine_adapter/embedded/packed_weights.h"

#include <algorithm>

#include "common/stopwatch.h"

namespace tandem::engine {
namespace {

constexpr const char* kPackedTag = "engine.packed";

}  // namespace

ops::CopyItem copy_of_columns(const Tensor& from, std::int64_t first_column, const Tensor& to) {
    const std::size_t width = dtype_size(from.dtype());
    const std::size_t bytes = static_cast<std::size_t>(to.dim(1)) * width;
    ops::CopyItem item;
    item.from = {from.raw() + static_cast<std::size_t>(first_column) * width, bytes};
    item.to = {to.raw(), bytes};
    item.rows = from.dim(0);
    item.from_stride = static_cast<std::size_t>(from.dim(1)) * width;
    item.to_stride = bytes;
    return item;
}

PackedWeights::PackedWeights(const ModelWeights& weights, Stream& stream, bool pack, int sum_parts)
    : weights_(weights), stream_(stream), pack_(pack), sum_parts_(sum_parts), layers_(weights.layers()) {}

void PackedWeights::take(ops::PackedWeight& to, const Tensor& from) {
    pack_ ? to.pack(from, kPackedTag) : to.point(from);
}

void PackedWeights::take_parts(std::vector<WeightPart>& to, const Tensor& from) {
    const std::int64_t columns = from.dim(1), each = (columns + sum_parts_ - 1) / sum_parts_;
    to.resize(static_cast<std::size_t>((columns + each - 1) / each));
    std::vector<ops::CopyItem> items;
    for (std::size_t i = 0; i < to.size(); ++i) {
        WeightPart& part = to[i];
        part.first_column = static_cast<std::int64_t>(i) * each;
        const std::int64_t count = std::min(each, columns - part.first_column);
        if (!part.columns.defined())
            part.columns = Tensor::empty(stream_, {from.dim(0), count}, from.dtype(), kPackedTag);
        items.push_back(copy_of_columns(from, part.first_column, part.columns));
    }
    ops::batched_copy(stream_, items);
    stream_.synchronize();
    for (WeightPart& part : to) take(part.weight, part.columns);
}

void PackedWeights::refresh() {
    if (contents_ == weights_.contents()) return;
    const Stopwatch stopwatch;
    for (std::size_t i = 0; i < layers_.size(); ++i) {
        const LayerWeights& from = weights_.layer(i);
        for (std::size_t r = 0; r < model::kRoles; ++r) {
            const auto role = static_cast<model::Role>(r);
            const Tensor& weight = from[role];
            if (weight.ndim() != 2) continue;
            std::vector<WeightPart>& to = layers_[i][role];
            const bool summed = role == model::Role::o || role == model::Role::down;
            if (summed && sum_parts_ > 1) {
                take_parts(to, weight);
            } else {
                to.resize(1);
                take(to[0].weight, weight);
            }
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
