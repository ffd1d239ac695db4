#include "common/sharding/pipeline_stages.h"

#include <fmt/core.h>

#include <algorithm>

#include "common/error.h"

namespace tandem {

bool DecoderPart::holds(const model::ParameterSpec& spec, bool tied) const {
    if (spec.layer >= 0) return first_layer <= spec.layer && spec.layer < end_layer;
    return spec.role == model::Role::embedding ? embeds || (heads && tied) : heads;
}

std::vector<DecoderPart> pipeline_stages(int layers, int stages, int first_less, int last_less) {
    if (stages == 1) return {{0, layers, true, true}};
    const int weight = layers + first_less + last_less;
    if (stages < 1 || stages > weight) {
        throw BadInput(fmt::format(
            "{} stages for {} layers, with the embedding as {} and the head as {} of them; at most {} fit",
            stages, layers, first_less, last_less, weight / std::max({1, first_less, last_less})));
    }
    const int each = weight / stages, more = weight % stages;
    if (first_less > each || last_less > each) {
        throw BadInput(
            fmt::format("{} layers fewer on the first stage and {} on the last, where a stage has {}",
                        first_less, last_less, each));
    }
    std::vector<DecoderPart> parts;
    for (int stage = 0, begin = 0; stage < stages; ++stage) {
        const bool first = stage == 0, last = stage + 1 == stages;
        const int size = each + (stage < more ? 1 : 0) - (first ? first_less : 0) - (last ? last_less : 0);
        parts.push_back({begin, begin + size, first, last});
        begin += size;
    }
    return parts;
}

}  // namespace tandem
