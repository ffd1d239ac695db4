// checkpoint_engine DIRECTORY BUFFER DEVICE: sends a Hugging Face directory's weights as to a server of SGLang's, out of a
// file in the place of a GPU's memory. Prints as JSON where the device's worker is to connect and what the buffer is; then
// sends bucket by bucket. A line of its standard input is how the server's call has returned: empty, or why it failed.
// For checkpoint_engine.py.
#include <algorithm>
#include <exception>
#include <filesystem>
#include <fstream>
#include <future>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "common/error.h"
#include "common/model/safetensors.h"
#include "engine_adapter/checkpoint_engine/sender.h"
#include "engine_adapter/checkpoint_engine/socket_folder.h"
#include "engine_adapter/hf_directory/model_tensors.h"

namespace {

using namespace tandem;
using namespace tandem::engine;

constexpr std::uint64_t kSmallestBuffer = 16384;
constexpr std::uint64_t kAlignment = 256;

class ServersCall {
  public:
    ServersCall() {
        auto said = std::make_shared<std::promise<std::string>>();
        returned_ = said->get_future().share();
        std::thread([said] {
            std::string line;
            std::getline(std::cin, line);
            said->set_value(line);
        }).detach();  // it may wait longer than the program does
    }
    bool returned() {
        if (returned_.wait_for(std::chrono::seconds(0)) != std::future_status::ready) return false;
        const std::string why = returned_.get();
        if (why.empty()) return true;
        throw TransportError("sglang://here", "POST /update_weights_from_ipc", why);
    }

  private:
    std::shared_future<std::string> returned_;
};

std::uint64_t size_of_buffer(const std::vector<TensorInfo>& tensors) {
    std::uint64_t bytes = kSmallestBuffer;
    for (const TensorInfo& tensor : tensors) bytes = std::max<std::uint64_t>(bytes, tensor_bytes(tensor));
    return bytes;
}

// What fits of the tensors from `next` on; their bytes go into the buffer.
std::vector<BucketTensor> fill(const std::string& buffer, std::uint64_t buffer_bytes,
                               const model::Safetensors& files, const std::vector<TensorInfo>& tensors,
                               std::size_t& next) {
    std::vector<BucketTensor> bucket;
    std::fstream file(buffer, std::ios::in | std::ios::out | std::ios::binary);
    for (std::uint64_t begin = 0; next < tensors.size(); ++next) {
        const Tensor tensor = files.tensor(tensors[next].name);
        const std::uint64_t bytes = tensor.bytes();
        if (begin + bytes > buffer_bytes) break;
        file.seekp(static_cast<std::streamoff>(begin));
        file.write(reinterpret_cast<const char*>(tensor.raw()), static_cast<std::streamsize>(bytes));
        bucket.push_back({tensors[next].name, tensors[next].shape, tensors[next].dtype, begin});
        begin += (bytes + kAlignment - 1) / kAlignment * kAlignment;
    }
    return bucket;
}

}  // namespace

int main(int argc, char** argv) try {
    if (argc != 4) {
        std::cerr << "usage: checkpoint_engine DIRECTORY BUFFER DEVICE\n";
        return 2;
    }
    const std::string directory = argv[1], buffer = argv[2], device = argv[3];
    const std::vector<TensorInfo> tensors = tensors_of_directory(directory);
    const auto files = model::Safetensors::open(directory);
    const std::uint64_t bytes = size_of_buffer(tensors);
    std::ofstream(buffer, std::ios::app).close();
    std::filesystem::resize_file(buffer, bytes);  // not cut: a worker of another sender may have it open
    const Deadline deadline = Deadline::after_ms(60'000);
    ServersCall call;
    checkpoint_engine::free_waiting_workers("sglang://here");
    checkpoint_engine::Sender sender({"sglang://here", {device}, [&] { return call.returned(); }});
    std::cout << nlohmann::json({{"zmq_handles", sender.zmq_handles()}, {"bytes", bytes}}).dump()
              << std::endl;
    const TorchCudaMemory memory{"", std::string(64, 'h'), bytes, 4096, "/tandem-no-counters", 0};
    sender.open(std::span(&memory, 1), deadline);
    for (std::size_t next = 0; next < tensors.size();)
        sender.load(fill(buffer, bytes, files, tensors, next), deadline);
    sender.end(deadline);
    return 0;
} catch (const std::exception& error) {
    std::cerr << error.what() << std::endl;
    return 1;
}
