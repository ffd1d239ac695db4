// sglang_payload DIRECTORY: stages a Hugging Face directory's weights in shared memory as a push to sglang+tensor://
// does, prints as JSON what it would send, and removes them when its standard input ends. For sglang_payload.py.
#include <cstring>
#include <iostream>
#include <limits>
#include <nlohmann/json.hpp>

#include "common/model/safetensors.h"
#include "engine_adapter/hf_directory/model_tensors.h"
#include "engine_adapter/sglang/payload.h"
#include "engine_adapter/sglang/shared_bucket.h"

int main(int argc, char** argv) try {
    using namespace tandem;
    if (argc != 2) {
        std::cerr << "usage: sglang_payload DIRECTORY\n";
        return 2;
    }
    const std::string directory = argv[1];
    const std::vector<engine::TensorInfo> tensors = engine::tensors_of_directory(directory);
    const engine::StagedDirectory staged(engine::kStagingRoot, directory, tensors, 1);
    const auto files = model::Safetensors::open(directory);
    for (std::size_t i = 0; i < tensors.size(); ++i) {
        const Tensor tensor = files.tensor(tensors[i].name);
        std::memcpy(staged.memory(i).data, tensor.raw(), tensor.bytes());
    }
    const engine::SharedBucket bucket(staged, tensors);

    // The same tensors on a GPU, as far as bytes can say it without one.
    std::vector<engine::BucketTensor> on_gpu;
    for (std::size_t i = 0; i < tensors.size(); ++i)
        on_gpu.push_back({tensors[i].name, tensors[i].shape, tensors[i].dtype, staged.begin(i)});
    std::string handle(64, '\0');
    for (std::size_t i = 0; i < handle.size(); ++i) handle[i] = static_cast<char>(i * 7 + 1);
    const engine::TorchCudaMemory memory{"0a1b2c3d-0000-1111-2222-333344445555",
                                         handle,
                                         staged.bytes(),
                                         std::uint64_t{5} << 32,
                                         "/tandem-counters",
                                         3};

    const nlohmann::json said = {
        {"file", bucket.path().string()},
        {"body", nlohmann::json::parse(engine::tensor_update_body(bucket.pickle(), 2))},
        {"cuda", nlohmann::json::parse(engine::tensor_update_body(flattened_bucket(memory, on_gpu), 1))},
        {"bytes", staged.bytes()}};
    std::cout << said.dump() << std::endl;
    std::cin.ignore(std::numeric_limits<std::streamsize>::max());
    return 0;
} catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 1;
}
