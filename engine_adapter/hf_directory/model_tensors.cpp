#include "engine_adapter/hf_directory/model_tensors.h"

#include <algorithm>
#include <map>
#include <string>

#include "common/model/check_weights.h"
#include "common/model/model_config.h"
#include "common/model/safetensors.h"

namespace tandem::engine {

std::vector<TensorInfo> tensors_of_directory(const std::filesystem::path& directory) {
    const auto files = model::Safetensors::open(directory.string());
    const bool tied = model::ties_embeddings(directory);
    std::vector<TensorInfo> tensors;
    for (const std::string& name : files.names()) {
        if (model::says_nothing_new(name, tied)) continue;
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
    if (most != DType::float32 && most != DType::bfloat16 && most != DType::float16) return;
    for (TensorInfo& tensor : tensors) {
        if (tensor.dtype == most) tensor.dtype = computes_in;
    }
}

}  // namespace tandem::engine
