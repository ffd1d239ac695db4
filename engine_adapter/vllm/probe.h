// What serves behind a vllm:// URL, asked before anything else: that it is vLLM, which version, in development mode, and
// which tensors it wants.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "engine_adapter/connect.h"
#include "engine_adapter/engine.h"
#include "engine_adapter/hf_directory/served_model.h"
#include "engine_adapter/vllm/server.h"

namespace tandem::engine {

struct VllmInfo {
    std::string version;         // "0.32.0", of the CPU build too
    std::string weight_version;  // "default" before the first update
    bool paused = false;
    // What it was started with, and says of itself (empty: it does not).
    std::string backend;         // of weight transfers: "tandem" is our plug-in
    std::optional<DType> dtype;  // that it computes in
    std::string device;          // "cpu", "cuda"
    std::string load_format;     // "auto"
    std::string quantization;    // "fp8"; empty: none
    std::string folder;          // of its own, with config.json: the model's, or a copy without weights
    // By find_tensors:
    ServedModel model;
    std::vector<TensorInfo> tensors;  // of that model that are wanted, in the dtype that it computes in
};

// What a push needs to know of any server: without model and tensors, which a plug-in of ours tells itself. An unknown
// version is a warning. Throws TransportError: something else answers, a route is not there, a wrong key.
VllmInfo probe_vllm(VllmServer& server, Deadline deadline);

// Adds model and tensors. Throws TransportError, and Error where nothing of its model can be read here (served_model.h), or
// what it holds of a quantised one.
void find_tensors(VllmServer& server, VllmInfo& info, const ConnectOptions& options, Deadline deadline);

// For a server that is to load a directory that it is given: from here on it does. Throws Error where that would be ignored,
// or be taken for something else: it was started with another load format.
void require_loads_directories(VllmServer& server, const VllmInfo& info);

}  // namespace tandem::engine
