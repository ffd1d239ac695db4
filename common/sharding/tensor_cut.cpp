#include "common/sharding/tensor_cut.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "common/dtensor/layout.h"
#include "common/error.h"

namespace tandem {
namespace {

using model::Cut;
using model::Role;

Placement placement_of(const model::ParameterSpec& spec) {
    if (spec.cut == Cut::column || spec.cut == Cut::vocabulary) return Shard(0);
    return spec.cut == Cut::row ? Shard(1) : Replicate();
}

bool fits(const model::DecoderSizes& sizes, int tp) {
    const std::int64_t kv_heads = sizes.num_key_value_heads;
    return sizes.num_attention_heads % tp == 0 && (kv_heads % tp == 0 || tp % kv_heads == 0);
}

}  // namespace

TensorCut tensor_cut(const model::ParameterSpec& spec, int tp) {
    if (spec.cut != Cut::column || spec.heads == 0 || spec.heads % tp == 0)
        return {{"tp"}, {tp}, {placement_of(spec)}};
    const bool shared = spec.role == Role::k || spec.role == Role::v;
    enforce(shared && tp % spec.heads == 0, "tensor '{}': {} heads do not divide by tensor parallelism {}",
            spec.name, spec.heads, tp);
    return {{"tp_heads", "tp_copies"}, {spec.heads, tp / spec.heads}, {Shard(0), Replicate()}};
}

Shape cut_shape(const model::ParameterSpec& spec, int tp, int tp_rank) {
    const TensorCut cut = tensor_cut(spec, tp);
    std::vector<int> coordinates(cut.sizes.size());
    for (std::size_t axis = cut.sizes.size(); axis-- > 0; tp_rank /= cut.sizes[axis])
        coordinates[axis] = tp_rank % cut.sizes[axis];
    return local_shape(spec.shape, cut.sizes, cut.placements, coordinates);
}

std::int64_t largest_shard(const model::DecoderSizes& sizes, int tp, int shards,
                           const std::vector<DecoderPart>& parts) {
    std::int64_t elements = 0;
    for (const model::ParameterSpec& spec : model::parameter_specs(sizes)) {
        if (std::none_of(parts.begin(), parts.end(), [&](const DecoderPart& part) {
                return part.holds(spec, sizes.tie_word_embeddings);
            }))
            continue;
        Shape shape = cut_shape(spec, tp, 0);
        shape[0] = padded_shard_size(shape[0], shards);
        elements += numel(shape);
    }
    return elements;
}

std::vector<int> tensor_degrees(const model::DecoderSizes& sizes, int most) {
    std::vector<int> degrees;
    for (int tp = 1; tp <= std::min<std::int64_t>(most, sizes.num_attention_heads); ++tp) {
        if (fits(sizes, tp)) degrees.push_back(tp);
    }
    return degrees;
}

void check_tensor_degree(const model::DecoderSizes& sizes, int tp) {
    enforce(fits(sizes, tp),
            "tensor parallelism {} does not fit {} query heads and {} key and value heads; {} do", tp,
            sizes.num_attention_heads, sizes.num_key_value_heads,
            fmt::join(tensor_degrees(sizes, static_cast<int>(sizes.num_attention_heads)), ", "));
}

}  // namespace tandem
