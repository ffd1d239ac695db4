#include "sync/bench/quantized_engine.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <unordered_map>

#include "sync/codec/scales.h"

namespace tandem::sync {
namespace {

bool is_linear(const engine::TensorInfo& tensor) {
    constexpr std::array<std::string_view, 4> kEnds{"_proj.weight", "_proj_with_mqa.weight", ".w13_weight",
                                                    ".w2_weight"};
    const std::string_view name = tensor.name;
    return name.find(".layers.") != std::string_view::npos && tensor.shape.size() >= 2 &&
           std::any_of(kEnds.begin(), kEnds.end(), [&](auto end) { return name.ends_with(end); });
}

}  // namespace

std::vector<engine::TensorInfo> quantize_linear(const std::vector<engine::TensorInfo>& plain,
                                                const std::vector<model::ParameterSpec>& model, DType dtype) {
    std::unordered_map<std::string, Shape> shapes;
    for (const model::ParameterSpec& tensor : model) shapes.emplace(tensor.name, tensor.shape);
    std::vector<engine::TensorInfo> result;
    for (engine::TensorInfo tensor : plain) {
        if (!is_linear(tensor)) {
            result.push_back(std::move(tensor));
            continue;
        }
        tensor.dtype = dtype;
        engine::TensorInfo scales =
            scales_of(tensor, [&](const std::string& name) { return shapes.at(name); });
        result.push_back(std::move(tensor));
        result.push_back(std::move(scales));
    }
    return result;
}

}  // namespace tandem::sync
