#include "sync/bench/stages.h"

#include <algorithm>
#include <set>

#include "common/error.h"

namespace tandem::sync {
namespace {

int layers_of(const std::vector<model::ParameterSpec>& model) {
    std::set<int> layers;
    for (const model::ParameterSpec& tensor : model) {
        if (tensor.layer >= 0) layers.insert(tensor.layer);
    }
    enforce(!layers.empty(), "no tensor's name has a layer (layers.N.): stages would have nothing to share");
    int next = 0;
    for (const int layer : layers) {
        enforce(layer == next, "no tensor is of layer {}, and one is of layer {}", next, layer);
        ++next;
    }
    return next;
}

std::vector<DecoderPart> parts_of(const std::vector<model::ParameterSpec>& model, int pp) {
    if (pp == 1) return {{}};  // has everything, whatever the names say
    return pipeline_stages(layers_of(model), pp);
}

}  // namespace

Stages::Stages(const std::vector<model::ParameterSpec>& model, int pp)
    : parts_(parts_of(model, pp)),
      tied_(std::none_of(model.begin(), model.end(), [](const model::ParameterSpec& tensor) {
          return tensor.role == model::Role::head;
      })) {}

}  // namespace tandem::sync
