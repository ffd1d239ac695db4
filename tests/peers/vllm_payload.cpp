// vllm_payload DIRECTORY PACKED_BYTES [OLD]: prints as JSON what a push sends to vLLM's backends "ipc", "nccl" and
// "sparse_nccl" (what changed since the weights of the directory OLD; without it, everything): the updates. The memory of
// a GPU that they speak of is the file DIRECTORY/memory, what "sparse_nccl" broadcasts is DIRECTORY/sparse, both one behind
// the other. For vllm_payload.py.
#include <cstring>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <numeric>

#include "common/model/safetensors.h"
#include "engine_adapter/gpu_staging/changed_runs.h"
#include "engine_adapter/gpu_staging/packed_layout.h"
#include "engine_adapter/hf_directory/model_tensors.h"
#include "engine_adapter/vllm/backend_update.h"

namespace {

using namespace tandem;
using namespace tandem::engine;

constexpr std::uint64_t kOffset = std::uint64_t{5} << 32;  // of the memory in the handle's allocation

TorchCudaMemory memory_at(std::uint64_t begin, std::uint64_t bytes) {
    std::string handle(64, '\0');
    for (std::size_t i = 0; i < handle.size(); ++i) handle[i] = static_cast<char>(i * 7 + 1);
    return {"0a1b2c3d-0000-1111-2222-333344445555", handle, bytes, kOffset + begin, "/tandem-no-counters", 3};
}

std::string staged(const std::string& directory, const std::vector<TensorInfo>& tensors,
                   const PackedLayout& layout) {
    const auto files = model::Safetensors::open(directory);
    std::string memory(layout.bytes, '\xee');
    for (std::size_t i = 0; i < tensors.size(); ++i) {
        const Tensor tensor = files.tensor(tensors[i].name);
        std::memcpy(memory.data() + layout.begin[i], tensor.raw(), tensor.bytes());
    }
    return memory;
}

// Each run an update of its own, and what is broadcast for it.
nlohmann::json sparse(const std::string& directory, const std::string& old,
                      const std::vector<TensorInfo>& tensors, const PackedLayout& layout,
                      std::uint64_t packed_bytes) {
    std::string fresh = staged(directory, tensors, layout);
    std::string base = staged(old.empty() ? directory : old, tensors, layout);
    const Span now{reinterpret_cast<std::byte*>(fresh.data()), fresh.size()};
    const Span before{reinterpret_cast<std::byte*>(base.data()), base.size()};
    Stream stream = Stream::make_inline();
    const ChangedRuns changed(tensors, layout, packed_bytes);
    nlohmann::json updates = nlohmann::json::array();
    std::ofstream sent(directory + "/sparse", std::ios::binary);
    const auto send = [&](ConstSpan bytes) {
        sent.write(reinterpret_cast<const char*>(bytes.data), static_cast<std::streamsize>(bytes.bytes));
    };
    for (const ChangedRun& run :
         old.empty() ? changed.all(stream, now, before) : changed.since(stream, now, before)) {
        const TensorInfo* const tensor = &tensors[run.tensor];
        const std::size_t width = dtype_size(tensor->dtype);
        std::vector<std::int32_t> every(run.count);
        std::iota(every.begin(), every.end(), static_cast<std::int32_t>(run.first));
        if (run.listed()) {
            send(run.indices.span());
            send(run.values.span());
        } else {
            send({reinterpret_cast<const std::byte*>(every.data()), run.count * sizeof(std::int32_t)});
            send(now.subspan(layout.begin[run.tensor] + run.first * width, run.count * width));
        }
        updates.push_back(sparse_update_info({&tensor, 1}, {&run.count, 1}));
    }
    return updates;
}

}  // namespace

int main(int argc, char** argv) try {
    if (argc != 3 && argc != 4) {
        std::cerr << "usage: vllm_payload DIRECTORY PACKED_BYTES [OLD]\n";
        return 2;
    }
    const std::string directory = argv[1];
    const std::vector<TensorInfo> tensors = tensors_of_directory(directory);
    const PackedLayout layout = lay_out_packed(tensors, std::stoull(argv[2]));
    std::ofstream(directory + "/memory", std::ios::binary) << staged(directory, tensors, layout);

    nlohmann::json said = {{"packed", nlohmann::json::array()}, {"chunks", nlohmann::json::array()}};
    std::vector<const TensorInfo*> all;
    std::vector<TorchCudaMemory> memory;
    const PackedChunk& first = layout.chunks.front();
    said["opening"] = packed_ipc_update(memory_at(first.begin, first.bytes), {});
    for (const PackedChunk& chunk : layout.chunks) {
        std::vector<const TensorInfo*> some;
        for (const std::size_t i : chunk.tensors) {
            some.push_back(&tensors[i]);
            memory.push_back(memory_at(layout.begin[i], tensor_bytes(tensors[i])));
        }
        said["packed"].push_back(packed_ipc_update(memory_at(chunk.begin, chunk.bytes), some));
        said["chunks"].push_back({chunk.begin, chunk.bytes});
        all.insert(all.end(), some.begin(), some.end());
    }
    said["unpacked"] = ipc_update(memory, all);
    said["nccl"] = update_info(all);
    said["sparse"] = sparse(directory, argc == 4 ? argv[3] : "", tensors, layout, std::stoull(argv[2]));
    said["offset"] = kOffset;
    std::cout << said.dump() << std::endl;
    return 0;
} catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 1;
}
