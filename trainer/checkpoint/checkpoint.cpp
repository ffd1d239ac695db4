#include "trainer/checkpoint/checkpoint.h"

#include <cerrno>
#include <filesystem>
#include <fstream>

#include "common/error.h"
#include "common/model/safetensors.h"

namespace tandem::trainer {
namespace {

Tensor widened(const Tensor& tensor) {
    if (tensor.dtype() == DType::float32) return tensor;
    require(tensor.dtype() == DType::bfloat16, "weights of dtype {} cannot be trained",
            dtype_name(tensor.dtype()));
    Tensor result = Tensor::empty(tensor.shape(), DType::float32, "checkpoint");
    const auto from = tensor.values<bfloat16>();
    const auto to = result.values<float>();
    for (std::size_t i = 0; i < from.size(); ++i) to[i] = static_cast<float>(from[i]);
    return result;
}

}  // namespace

void save_checkpoint(const Policy& policy, const std::string& directory) {
    const bool writer = policy.mesh().rank() == policy.mesh().ranks().front();
    std::vector<std::pair<std::string, Tensor>> tensors;
    for (const auto& [name, parameter] : policy.parameters()) {
        Tensor full = parameter.full_tensor();  // collective
        if (writer) tensors.emplace_back(name, std::move(full));
    }
    if (!writer) return;
    std::filesystem::create_directories(directory);
    model::write_safetensors(directory + "/model.safetensors", tensors);
    model::ModelConfig config = policy.config();
    config.torch_dtype = DType::float32;
    std::ofstream out(directory + "/config.json");
    out << model::to_json(config);
    if (!out.flush()) throw SystemError("write " + directory + "/config.json", errno);
}

void load_checkpoint(Policy& policy, const std::string& directory) {
    const auto weights = model::Safetensors::open(directory);
    for (const auto& [name, parameter] : policy.parameters()) {
        policy.load_parameter(name, widened(weights.tensor(name)));
    }
}

}  // namespace tandem::trainer
