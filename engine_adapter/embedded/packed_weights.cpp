#include "engine_adapter/embedded/packed_weights.h"

#include <algorithm>

#include "common/align.h"
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

void PackedWeights::take_parts(std::vector<WeightPart>& to, const Tensor& from, Copies& copies) {
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
    for (WeightPart& part : to) copies.push_back({&part.weight, part.columns});
}

// All in one piece of memory, which huge pages can hold: the matrices of small models are smaller than a page.
void PackedWeights::pack(const Copies& copies) {
    constexpr std::size_t kAlign = 64;
    const auto room_for = [](const Copy& copy) {
        return round_up(ops::PackedWeight::packed_bytes(copy.from), kAlign);
    };
    std::size_t bytes = 0;
    for (const Copy& copy : copies) bytes += room_for(copy);
    if (memory_.bytes() != bytes) memory_ = Buffer(bytes, kPackedTag);
    std::size_t at = 0;
    for (const Copy& copy : copies) {
        copy.to->pack_into(copy.from, memory_.span().subspan(at, room_for(copy)));
        at += room_for(copy);
    }
}

void PackedWeights::refresh() {
    if (contents_ == weights_.contents()) return;
    const Stopwatch stopwatch;
    Copies copies;
    for (std::size_t i = 0; i < layers_.size(); ++i) {
        const LayerWeights& from = weights_.layer(i);
        for (std::size_t r = 0; r < model::kRoles; ++r) {
            const auto role = static_cast<model::Role>(r);
            const Tensor& weight = from[role];
            if (weight.ndim() != 2) continue;
            std::vector<WeightPart>& to = layers_[i][role];
            const bool summed = role == model::Role::o || role == model::Role::down;
            if (summed && sum_parts_ > 1) {
                take_parts(to, weight, copies);
            } else {
                to.resize(1);
                copies.push_back({&to[0].weight, weight});
            }
        }
    }
    copies.push_back({&head_, weights_.head()});
    if (pack_) {
        pack(copies);
    } else {
        for (const Copy& copy : copies) copy.to->point(copy.from);
    }
    contents_ = weights_.contents();
    packed_ms_ = stopwatch.ms();
}

void PackedWeights::release() {
    for (PackedLayer& layer : layers_) layer = PackedLayer();
    head_ = ops::PackedWeight();
    memory_ = Buffer();
    contents_ = 0;
}

}  // namespace tandem::engine
