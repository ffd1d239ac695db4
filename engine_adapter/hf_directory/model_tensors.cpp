#include "engine_adapter/hf_directory/model_tensors.h"

#include <algorithm>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "common/model/safetensors.h"

namespace tandem::engine {

bool ties_embeddings(const std::filesystem::path& model) {
    std::ifstream file(model / "config.json");
    const auto config = nlohmann::json::parse(file, nullptr, false);
    return config.is_object() && config.value("tie_word_embeddings", false);
}

std::vector<TensorInfo> tensors_of_directory(const std::filesystem::path& model) {
    const auto files = model::Safetensors::open(model.string());
    const bool tied = ties_embeddings(model);
    std::vector<TensorInfo> tensors;
    for (const std::string& name : files.names()) {
        if (tied && name == "lm_head.weight") continue;
        tensors.push_back({name, files.shape(name), files.dtype(name), {}});
    }
    return tensors;
}

void follow_dtype(std::vector<TensorInfo>& tensors, DType computes_in) {
    std::map<DType, std::size_t> bytes;
    for (const TensorInfo& tensor : tensors) bytes[tensor.dtype] += tensor_bytes(tensor);
    if (bytes.empty()) return;
    const auto fewer = [](const auto& a, const auto& b) { return a.second < b.second; };
    const DType most = std::max_element(bytes.begin(), bytes.end(), fewer)->first;
    if (most != DType::float32 && most != DType::bfloat16) return;
    for (TensorInfo& tensor : tensors) {
        if (tensor.dtype == most) tensor.dtype = computes_in;
    }
}

}  // namespace tandem::engine
